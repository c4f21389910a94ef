// Requests of NIXL's, from their descriptors to their end.
#include <algorithm>
#include <cstring>

#include "cuda/gpu.h"
#include "library/nixl/core.h"

namespace tcpx::nixl {
namespace {

constexpr uint64_t kCopyAtOnce = 256 << 10;  // within the call that posts it
constexpr uint64_t kCopyPerRound = 8 << 20;

// In frames of at most as many segments as one takes, and bytes of one that count.
constexpr size_t kSegmentsPerFrame = 16384;

void copy_bytes(const RegionRange& from, uint64_t from_offset, const RegionRange& to,
                uint64_t to_offset, uint64_t bytes, int gpu) {
  uint8_t* source = from.data() + from_offset;
  uint8_t* target = to.data() + to_offset;
  if (!from.region().on_gpu && !to.region().on_gpu) {
    memmove(target, source, bytes);
    return;
  }
  const GpuCurrent current(&use_gpu(gpu));
  copy_now(reinterpret_cast<CudaAddress>(target), reinterpret_cast<CudaAddress>(source), bytes);
}

}  // namespace

Status Core::prepare(Operation operation, const MetaList& local, const MetaList& remote,
                     const std::string& agent, std::unique_ptr<RequestHandle>& out) {
  if (operation != kRead && operation != kWrite) return kInvalidParam;
  const auto& ours = local.entries();
  const auto& theirs = remote.entries();
  if (ours.size() != theirs.size() || ours.empty()) {
    return refuse(kInvalidParam, std::to_string(ours.size()) + " local descriptors for " +
                                     std::to_string(theirs.size()) + " remote ones");
  }
  for (const MetaList* list : {&local, &remote}) {
    if (list->memory() != kDram && list->memory() != kVram) return kNotSupported;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (agent != all_.agent && known_.count(agent) == 0) {
    return refuse_unknown(agent);
  }
  std::vector<Pair> pairs;
  pairs.reserve(ours.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto* here = dynamic_cast<const LocalMetadata*>(ours[i].metadata);
    const auto* there = dynamic_cast<const RemoteMetadata*>(theirs[i].metadata);
    if (here == nullptr || !all_.regions.has_made(*here->region) || there == nullptr ||
        there->agent != agent) {
      return refuse(kInvalidParam, "descriptor " + std::to_string(i) +
                                       " is not of memory of this backend and agent " + agent);
    }
    const Region& region = *here->region;
    const uint64_t bytes = ours[i].bytes;
    const uint64_t at = ours[i].address - reinterpret_cast<uint64_t>(region.data);
    const uint64_t at_there = theirs[i].address - there->info.address;
    if (bytes != theirs[i].bytes) {
      return refuse(kMismatch, "descriptor " + std::to_string(i) + " has " + std::to_string(bytes) +
                                   " bytes here and " + std::to_string(theirs[i].bytes) + " there");
    }
    if (region.gone || at > region.bytes || bytes > region.bytes - at) {
      return refuse(kInvalidParam,
                    "descriptor " + std::to_string(i) + " is outside of what is registered here");
    }
    if (at_there > there->info.bytes || bytes > there->info.bytes - at_there) {
      return refuse(kInvalidParam, "descriptor " + std::to_string(i) +
                                       " is outside of what agent " + agent + " has registered");
    }
    pairs.push_back({reinterpret_cast<uint64_t>(&region), at, there->info.region, at_there, bytes});
  }
  pairs = coalesce(std::move(pairs));

  auto prepared = std::make_shared<Prepared>();
  prepared->operation = operation;
  prepared->remote = agent;
  prepared->on_gpu = local.memory() == kVram || remote.memory() == kVram;
  const StageRule rule = all_.stage_rule(!prepared->on_gpu);
  size_t next = 0;
  do {
    FrameContent part;
    const size_t count = std::min(pairs.size() - next, kSegmentsPerFrame);
    for (size_t i = next; i < next + count; ++i) {
      auto* region = reinterpret_cast<Region*>(pairs[i].here_region);
      part.here.push_back({region->shared_from_this(), pairs[i].here_offset});
      part.there.push_back({pairs[i].there_region, pairs[i].there_offset, pairs[i].bytes});
      part.bytes += pairs[i].bytes;
    }
    part.messages = plan(count, rule, [&](size_t i) { return part.there[i].bytes; });
    prepared->bytes += part.bytes;
    prepared->parts.push_back(std::move(part));
    next += count;
  } while (next < pairs.size());
  out = std::make_unique<RequestHandle>();
  out->prepared = std::move(prepared);
  if (agent != all_.agent) link_to(agent);  // it comes up meanwhile
  return kSuccess;
}

Status Core::post(RequestHandle& request, const PostOptions* options) {
  auto transfer = std::make_shared<Transfer>();
  transfer->prepared = request.prepared;
  if (options != nullptr && options->has_notification) {
    if (options->notification.size() > kMaxNotification) {
      return refuse(kInvalidParam, "a notification of " +
                                       std::to_string(options->notification.size()) +
                                       " bytes: at most " + std::to_string(kMaxNotification));
    }
    transfer->notifies = true;
    transfer->notification = options->notification;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (request.current && request.current->status.load() == kInProgress) return kRepostActive;
  for (const FrameContent& part : request.prepared->parts) {
    for (const Here& here : part.here) {
      if (here.region->gone) return refuse(kInvalidParam, "its memory is no longer registered");
    }
  }
  const std::string& agent = request.prepared->remote;
  if (agent == all_.agent) {
    const Status status = post_copy(transfer);
    request.current = std::move(transfer);
    return status;
  }
  Initiator* link = link_to(agent);
  if (link == nullptr) return refuse(kNotFound, "agent " + agent + " was disconnected");
  request.current = transfer;
  link->submit(transfer);
  if (link->stage() == LinkStage::kFailed) link->fail_queued();
  if (link->active()) wake();
  return static_cast<Status>(transfer->status.load());
}

Status Core::check(RequestHandle& request) {
  const std::shared_ptr<Transfer>& transfer = request.current;  // NIXL posts and checks in turn
  if (!transfer) return kNotPosted;
  int status = transfer->status.load(std::memory_order_acquire);
  if (status == kInProgress) {
    progress_by_caller();
    status = transfer->status.load(std::memory_order_acquire);
  }
  return static_cast<Status>(status);
}

// What is under way of it goes on, to its end: no plugin takes a request back.
void Core::release(RequestHandle& request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (request.current) request.current->released = true;
}

// --- Within this agent

Status Core::post_copy(const std::shared_ptr<Transfer>& transfer) {
  const Prepared& prepared = *transfer->prepared;
  Copy copy;
  copy.transfer = transfer;
  const bool is_write = prepared.operation == kWrite;
  for (const FrameContent& part : prepared.parts) {
    for (size_t i = 0; i < part.here.size(); ++i) {
      std::string why;
      std::shared_ptr<Region> region = all_.regions.find(part.there[i], &why);
      if (!region) {
        transfer->status = kNotAllowed;
        return refuse(kNotAllowed, why);
      }
      (is_write ? copy.to : copy.from)
          .emplace_back(std::move(region), part.there[i].offset, part.there[i].bytes);
      (is_write ? copy.from : copy.to)
          .emplace_back(part.here[i].region, part.here[i].offset, part.there[i].bytes);
    }
  }
  copies_.push_back(std::move(copy));
  if (prepared.bytes <= kCopyAtOnce && copies_.size() == 1) copy_some();
  if (transfer->status.load() == kInProgress) wake();
  return static_cast<Status>(transfer->status.load());
}

bool Core::copy_some() {
  if (copies_.empty()) return false;
  uint64_t left = kCopyPerRound;
  while (!copies_.empty() && left > 0) {
    Copy& copy = copies_.front();
    int status = kSuccess;
    while (status == kSuccess && copy.at < copy.from.size() && left > 0) {
      const uint64_t bytes = std::min(left, copy.from[copy.at].bytes() - copy.offset);
      try {
        copy_bytes(copy.from[copy.at], copy.offset, copy.to[copy.at], copy.offset, bytes,
                   all_.options.gpu);
      } catch (const std::exception& error) {
        status = refuse(kBackend, error.what());
      }
      left -= bytes;
      copy.offset += bytes;
      if (copy.offset < copy.from[copy.at].bytes()) continue;
      ++copy.at;
      copy.offset = 0;
    }
    if (status == kSuccess && copy.at < copy.from.size()) break;
    Transfer& transfer = *copy.transfer;
    if (status == kSuccess && transfer.notifies) all_.notify(all_.agent, transfer.notification);
    transfer.status.store(status, std::memory_order_release);
    copies_.pop_front();
  }
  return true;
}

}  // namespace tcpx::nixl
