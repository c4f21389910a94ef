#include "library/nixl/pump.h"

#include <algorithm>
#include <cstring>

namespace tcpx::nixl {
namespace {

constexpr int kSlots = 8;
constexpr size_t kMostPosted = 32;  // more than the windows of a few channels hold is of no use

}  // namespace

bool names(const std::vector<RegionRange>& places, const Region& region) {
  return std::any_of(places.begin(), places.end(),
                     [&](const RegionRange& place) { return &place.region() == &region; });
}

void gather(const std::vector<RegionRange>& places, size_t first, size_t count, uint8_t* to) {
  for (size_t i = first; i < first + count; ++i) {
    memcpy(to, places[i].data(), places[i].bytes());
    to += places[i].bytes();
  }
}

void scatter(const uint8_t* from, const std::vector<RegionRange>& places, size_t first,
             size_t count) {
  for (size_t i = first; i < first + count; ++i) {
    memcpy(places[i].data(), from, places[i].bytes());
    from += places[i].bytes();
  }
}

Pump::Pump(DataPath& path, std::string remote, bool sends, uint64_t stage_bytes)
    : path_(path), remote_(std::move(remote)), sends_(sends), stage_bytes_(stage_bytes) {}

// The remote is closed before: nothing touches the bounce buffers any more.
Pump::~Pump() {
  if (bounce_) path_.deregister_memory(bounce_memory_);
}

bool Pump::uses(const Region& region) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& job) { return names(job->places, region); }) ||
         std::any_of(posted_.begin(), posted_.end(),
                     [&](const Posted& posted) { return names(posted.job->places, region); });
}

bool Pump::run() {
  if (failed_) return false;
  bool moved = false;
  while (!posted_.empty() && finish_oldest()) moved = true;
  while (!failed_ && !jobs_.empty() && posted_.size() < kMostPosted && post_next()) moved = true;
  return moved;
}

bool Pump::post_next() {
  Job& job = *jobs_.front();
  const Message& message = job.messages[job.posted];
  int slot = -1;
  uint64_t number;
  if (message.staged) {
    if (!bounce_) {
      bounce_ = std::make_unique<HostBuffer>(kSlots * stage_bytes_);
      bounce_memory_ = path_.register_memory(bounce_->data(), bounce_->bytes(), false);
      for (int i = kSlots; i-- > 0;) free_slots_.push_back(i);
    }
    if (free_slots_.empty()) return false;
    slot = free_slots_.back();
    free_slots_.pop_back();
    if (sends_) gather(job.places, message.first, message.count, slot_data(slot));
    number = path_.post(remote_, sends_, bounce_memory_, slot * stage_bytes_, message.bytes);
  } else {
    const RegionRange& place = job.places[message.first];
    number = path_.post(remote_, sends_, place.region().path_id, place.offset() + message.offset,
                        message.bytes);
  }
  posted_.push_back({jobs_.front(), job.posted, number, slot});
  if (++job.posted == job.messages.size()) jobs_.pop_front();
  return true;
}

bool Pump::finish_oldest() {
  Posted& oldest = posted_.front();
  const MessageStage stage = path_.message(remote_, oldest.number);
  if (stage == MessageStage::kActive) return false;
  if (stage == MessageStage::kFailed) {
    failed_ = true;
    return false;
  }
  path_.forget(remote_, oldest.number);
  const std::shared_ptr<Job> job = oldest.job;
  const Message& message = job->messages[oldest.message];
  if (oldest.slot >= 0) {
    if (!sends_) scatter(slot_data(oldest.slot), job->places, message.first, message.count);
    free_slots_.push_back(oldest.slot);
  }
  const bool is_last = oldest.message + 1 == job->messages.size();
  posted_.pop_front();
  if (is_last) job->done();
  return true;
}

}  // namespace tcpx::nixl
