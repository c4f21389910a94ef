#include "nixl/target.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tcpx::nixl {
namespace {

constexpr size_t kMostOpen = 4096;
constexpr uint64_t kMostInline = 1 << 20;
constexpr size_t kMostBacklog = 8 << 20;
constexpr uint64_t kMostNotificationBytes = 256 << 20;

}  // namespace

Target::Target(Surroundings& all, Socket connected) : Link(all, "of", "(not named yet)") {
  stream_ = Stream(std::move(connected), all.patience());
}

bool Target::uses(const Region& region) const {
  return Link::uses(region) || std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
           return entry.second && names(entry.second->places, region);
         });
}

// Who does not take our answers, or notifies of more than is fetched, waits.
bool Target::accepts_more() const {
  return stream_.backlog() <= kMostBacklog && all_.notification_bytes <= kMostNotificationBytes;
}

void Target::take(const Frame& frame) {
  const bool is_ready = stage_ == LinkStage::kReady;
  switch (frame.type) {
    case FrameType::kHello:
      return take_hello(frame);
    case FrameType::kUp:
      read_text(frame.body, 0);
      return take_up();
    case FrameType::kWrite:
      if (is_ready) return serve_write(read_transfer(frame.body));
      break;
    case FrameType::kRead:
      if (is_ready) return serve_read(read_transfer(frame.body));
      break;
    case FrameType::kCredit:
      if (is_ready) return granted_credit(read_id(frame.body));
      break;
    case FrameType::kCancel:
      if (is_ready) {
        const auto found = open_.find(read_id(frame.body));
        if (found == open_.end() || !found->second) throw WireError("a cancel of nothing");
        open_.erase(found);
        return;
      }
      break;
    case FrameType::kNotify:
      if (is_ready) return all_.notify(remote_, read_text(frame.body, kMaxNotification));
      break;
    default:
      break;
  }
  throw WireError("a frame of type " + std::to_string(static_cast<int>(frame.type)) +
                  ", which is not due");
}

void Target::take_hello(const Frame& frame) {
  if (stage_ != LinkStage::kGreeting || sends_) throw WireError("a second hello");
  const Greeting greeting = read_greeting(frame.body);
  remote_ = greeting.sender;
  if (greeting.token != all_.token) {
    return refuse("this is not the engine that the metadata is of: load it again");
  }
  if (greeting.target != all_.agent) {
    return refuse("this is agent " + all_.agent + ", not " + greeting.target);
  }
  const std::string differs = difference(all_.terms, greeting.terms);
  if (!differs.empty()) return refuse(differs);
  greet(FrameType::kWelcome, all_.token);
  join(greeting);
}

void Target::refuse(const std::string& reason) {
  write_text(out(), FrameType::kRefuse, reason);
  fail(kNotAllowed, who() + " was refused: " + reason);
}

std::shared_ptr<Job> Target::checked(const TransferFrame& transfer) {
  if (open_.size() >= kMostOpen || open_.count(transfer.id) > 0) {
    throw WireError("transfer " + std::to_string(transfer.id) + " is one too many");
  }
  auto job = std::make_shared<Job>();
  job->places.reserve(transfer.segments.size());
  DoneFrame refusal{transfer.id, kNotAllowed, ""};
  std::string why;
  uint64_t total = 0;
  for (const Segment& segment : transfer.segments) {
    std::shared_ptr<Region> region = all_.regions.find(segment, &why);
    if (region && segment.bytes == 0) why = "a segment of 0 bytes";
    if (region && region->on_gpu && (transfer.stages || transfer.is_inline)) {
      why = "memory of a GPU, which takes neither small nor gathered messages";
    }
    if (!why.empty()) break;
    job->places.emplace_back(std::move(region), segment.offset, segment.bytes);
    total += segment.bytes;
  }
  if (why.empty() && transfer.is_inline && total > kMostInline) why = "too much for one frame";
  if (!why.empty()) {
    report(all_.agent, who() + " asked for what it may not: " + why);
    refusal.reason = why;
    write_done(out(), refusal);
    return nullptr;
  }
  job->messages = plan(job->places.size(), all_.stage_rule(transfer.stages),
                       [&](size_t i) { return job->places[i].bytes(); });
  return job;
}

void Target::serve_write(const TransferFrame& transfer) {
  const std::shared_ptr<Job> job = checked(transfer);
  if (!job) return;
  if (transfer.is_inline || job->places.empty()) {
    uint64_t total = 0;
    for (const Place& place : job->places) total += place.bytes();
    if (transfer.payload.size() != total) {
      throw WireError(std::to_string(transfer.payload.size()) + " bytes for segments of " +
                      std::to_string(total));
    }
    scatter(reinterpret_cast<const uint8_t*>(transfer.payload.data()), job->places, 0,
            job->places.size());
    if (transfer.notifies) all_.notify(remote_, transfer.notification);
    return write_done(out(), {transfer.id, kSuccess, ""});
  }
  job->done = [this, id = transfer.id, notifies = transfer.notifies,
               text = std::string(transfer.notification)] {
    if (notifies) all_.notify(remote_, text);
    write_done(out(), {id, kSuccess, ""});
    open_.erase(id);
  };
  open_.emplace(transfer.id, nullptr);
  receives_->add(job);
  write_id(out(), FrameType::kCredit, transfer.id);
}

void Target::serve_read(const TransferFrame& transfer) {
  const std::shared_ptr<Job> job = checked(transfer);
  if (!job) return;
  if (transfer.is_inline || job->places.empty()) {
    uint64_t total = 0;
    for (const Place& place : job->places) total += place.bytes();
    char* to = write_data(out(), transfer.id, total);
    return gather(job->places, 0, job->places.size(), reinterpret_cast<uint8_t*>(to));
  }
  job->done = [this, id = transfer.id] { open_.erase(id); };
  open_.emplace(transfer.id, job);
  write_id(out(), FrameType::kGrant, transfer.id);
}

void Target::granted_credit(uint64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end() || !found->second) throw WireError("a credit for nothing");
  sends_->add(std::move(found->second));
  found->second = nullptr;
}

}  // namespace tcpx::nixl
