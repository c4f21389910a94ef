#include "library/nixl/initiator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/clock.h"

namespace tcpx::nixl {
namespace {

constexpr size_t kMostOpen = 1024;                  // frames that wait for their end
constexpr size_t kMostGpuCopies = 8;                // for one frame: each is a call of the driver
constexpr size_t kMostBacklog = 4 << 20;            // bytes of frames that the socket did not take
constexpr int64_t kDialPatienceNs = 2'000'000'000;  // an address, where there are others
constexpr int64_t kRestNs = 100'000'000;            // before it is dialed again

// What a target keeps of a part; that of a request of one carries its notification.
size_t state_at_target(const Transfer& transfer, const FrameContent& part) {
  const bool with_frame = transfer.prepared->parts.size() == 1;
  return target_state_bytes(part.there.size(), with_frame ? transfer.notification.size() : 0);
}

}  // namespace

Initiator::Initiator(Surroundings& all, const std::string& remote, ConnectionInfo info)
    : AgentLink(all, "to", remote),
      info_(std::move(info)),
      addresses_(info_.addresses),
      begun_at_(now_ns()) {
  if (!info_.machine.empty() && info_.machine == all.machine) {
    addresses_.insert(addresses_.begin(), "127.0.0.1");
  }
  stage_ = LinkStage::kDialing;
  dial_next("no address");
}

void Initiator::dial_next(const std::string& why) {
  std::string reason = why;
  while (next_address_ < addresses_.size()) {
    if (stream_.dial(addresses_[next_address_++], info_.port, &reason)) {
      dialed_at_ = now_ns();
      return;
    }
  }
  const std::string last = addresses_.empty() ? "" : addresses_.back();
  fail(kRemoteDisconnect, who() + " cannot be reached at " + last + ", port " +
                              std::to_string(info_.port) + ": " + reason);
}

bool Initiator::advance(int64_t now) {
  if (stage_ == LinkStage::kReady) {
    const size_t before = queued_.size();
    begin();
    return queued_.size() != before;
  }
  if (stage_ != LinkStage::kDialing) return false;
  if (stream_.fd() < 0) {  // it rests
    if (now - dialed_at_ < kRestNs) return false;
    next_address_ = 0;
    dial_next("no address");
    return true;
  }
  std::string why = "no answer";
  const DialStage stage = stream_.dialed(&why);
  if (stage == DialStage::kConnected) {
    stage_ = LinkStage::kGreeting;
    return true;
  }
  const bool late = now - dialed_at_ > kDialPatienceNs && next_address_ < addresses_.size();
  if (stage == DialStage::kFailed || late) dial_next(why);
  return stage == DialStage::kFailed;
}

// A target has places for so many that it does not know yet, and the oldest of them gives way.
bool Initiator::begins_anew() {
  const int64_t now = now_ns();
  const auto patience_ns = static_cast<int64_t>(all_.options.connect_patience_s * 1e9);
  if (stage_ != LinkStage::kGreeting || now - begun_at_ > patience_ns) return false;
  close_stream(0);
  leave_path();
  stream_ = Stream(all_.patience());
  is_challenged_ = false;
  dialed_at_ = now;
  stage_ = LinkStage::kDialing;
  return true;
}

bool Initiator::active() const {
  return AgentLink::active() ||
         (stage_ == LinkStage::kReady && (!queued_.empty() || !notes_.empty()));
}

bool Initiator::uses(const Region& region) const {
  auto has = [&](const Ask& ask) { return names(ask.places, region); };
  return AgentLink::uses(region) || std::any_of(queued_.begin(), queued_.end(), has) ||
         std::any_of(open_.begin(), open_.end(),
                     [&](const auto& entry) { return has(entry.second); });
}

// --- What is asked for

void Initiator::submit(const std::shared_ptr<Transfer>& transfer) {
  const Prepared& prepared = *transfer->prepared;
  transfer->open_parts = prepared.parts.size();
  for (const FrameContent& part : prepared.parts) {
    Ask ask{transfer, &part, {}};
    ask.places.reserve(part.here.size());
    for (size_t i = 0; i < part.here.size(); ++i) {
      ask.places.emplace_back(part.here[i].region, part.here[i].offset, part.there[i].bytes);
    }
    queued_.push_back(std::move(ask));
  }
  if (stage_ != LinkStage::kReady) return;
  begin();
  flush();
}

void Initiator::notify(std::string_view text) {
  if (stage_ != LinkStage::kReady) {
    notes_.emplace_back(text);
    return;
  }
  write_text(out(), FrameType::kNotify, text);
  flush();
}

void Initiator::begin() {
  for (; !notes_.empty(); notes_.pop_front()) {
    write_text(out(), FrameType::kNotify, notes_.front());
  }
  while (!queued_.empty() && has_place_for(queued_.front())) {
    Ask ask = std::move(queued_.front());
    queued_.pop_front();
    if (ask.transfer->released || ask.transfer->error != kSuccess) {
      part_ended(*ask.transfer, kCanceled);
    } else {
      start(std::move(ask));
    }
  }
}

bool Initiator::has_place_for(const Ask& ask) const {
  return open_.size() < kMostOpen && stream_.backlog() < kMostBacklog &&
         kept_ + state_at_target(*ask.transfer, *ask.part) <= kMostKept;
}

void Initiator::start(Ask ask) {
  const uint64_t id = next_id_++;
  Transfer& transfer = *ask.transfer;
  const Prepared& prepared = *transfer.prepared;
  const bool is_write = ask.is_write();
  const size_t frame_bytes = kMaxTransferHead + ask.part->there.size() * kSegmentBytes +
                             transfer.notification.size() + ask.part->bytes;
  const bool few = !prepared.on_gpu || ask.part->there.size() <= kMostGpuCopies;
  ask.is_inline = ask.part->bytes == 0 ||
                  (few && ask.part->bytes <= all_.options.inline_bytes && frame_bytes <= kMaxBody);
  TransferFrame frame;
  frame.id = id;
  frame.is_inline = ask.is_inline;
  frame.stages = !prepared.on_gpu;
  frame.segments = ask.part->there;
  // Of a request of several frames, or a read, it follows when all is over.
  if (is_write && prepared.parts.size() == 1 && transfer.notifies) {
    frame.notifies = true;
    frame.notification = transfer.notification;
  }
  const size_t payload = is_write && ask.is_inline ? ask.part->bytes : 0;
  std::string broken;
  const size_t frame_at = out().size();
  char* to = write_transfer(out(), is_write ? FrameType::kWrite : FrameType::kRead, frame, payload);
  if (payload > 0) {
    try {
      gather_into(to, ask.places, frame_at);
      ask.sent = true;
    } catch (const std::exception& error) {
      broken = error.what();
    }
  }
  if (ask.part->bytes == 0) ask.sent = true;
  kept_ += ask.kept = state_at_target(transfer, *ask.part);
  open_.emplace(id, std::move(ask));
  if (!broken.empty()) fail(kBackend, who() + ": " + broken);
}

// --- What is answered

void Initiator::take(const Frame& frame) {
  const bool is_ready = stage_ == LinkStage::kReady;
  switch (frame.type) {
    case FrameType::kChallenge:
      if (stage_ != LinkStage::kGreeting || is_challenged_) break;
      is_challenged_ = true;
      challenge_ = read_challenge(frame.body);
      if (!random_token(&attempt_)) throw std::runtime_error("no random numbers are to be had");
      return greet(FrameType::kHello, attempt_, info_.token, challenge_);
    case FrameType::kWelcome: {
      if (stage_ != LinkStage::kGreeting || !is_challenged_) break;
      const std::optional<Greeting> proven = read_proven(frame, info_.token, challenge_);
      if (!proven || !same_token(proven->attempt, attempt_)) {
        return fail(kMismatch, who() + " does not prove to be the engine that the metadata is of");
      }
      const Greeting& greeting = *proven;
      const std::string differs = difference(all_.terms, greeting.terms);
      if (!differs.empty()) return fail(kMismatch, who() + ": " + differs);
      if (greeting.sender != remote_) {
        return fail(kMismatch, who() + " is " + greeting.sender + " now: load its metadata again");
      }
      join(greeting);
      return take_begun();
    }
    case FrameType::kRefuse:
      return fail(kNotAllowed,
                  who() + " refuses: " + std::string(read_text(frame.body, kMaxReason)));
    case FrameType::kUp:
      read_text(frame.body, 0);
      return take_up();
    case FrameType::kCredit:
      if (is_ready) return credited(read_id(frame.body));
      break;
    case FrameType::kGrant:
      if (is_ready) return granted(read_id(frame.body));
      break;
    case FrameType::kData:
      if (is_ready) return take_data(read_data(frame.body));
      break;
    case FrameType::kDone:
      if (is_ready) {
        const DoneFrame done = read_done(frame.body);
        const auto found = open_.find(done.id);
        if (found == open_.end()) throw WireError("the end of a transfer that is not open");
        Ask& ask = found->second;
        if (done.status != kSuccess) {
          report(all_.agent, who() + " refuses a transfer: " + std::string(done.reason));
          return end_part(done.id, static_cast<Status>(done.status));
        }
        if (!ask.is_write()) throw WireError("the end of a read");
        ask.done = true;
        if (ask.sent) end_part(done.id, kSuccess);
        return;
      }
      break;
    default:
      break;
  }
  throw WireError("a frame of type " + std::to_string(static_cast<int>(frame.type)) +
                  ", which is not due");
}

Initiator::Ask& Initiator::find(uint64_t id, bool is_write) {
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.is_write() != is_write || found->second.is_inline ||
      found->second.granted) {
    throw WireError("an answer to what was not asked");
  }
  return found->second;
}

std::shared_ptr<Job> Initiator::job_of(uint64_t id, Ask& ask) {
  auto job = std::make_shared<Job>();
  job->messages = ask.part->messages;
  job->places = std::move(ask.places);
  job->done = [this, id] {
    const auto found = open_.find(id);
    if (found == open_.end()) return;
    if (!found->second.is_write()) return end_part(id, kSuccess);
    found->second.sent = true;
    if (found->second.done) end_part(id, kSuccess);
  };
  ask.granted = true;
  return job;
}

void Initiator::credited(uint64_t id) { sends_->add(job_of(id, find(id, true))); }

void Initiator::granted(uint64_t id) {
  Ask& ask = find(id, false);
  if (ask.transfer->released) {  // nobody wants it any more, and nothing is on its way
    write_id(out(), FrameType::kCancel, id);
    return end_part(id, kCanceled);
  }
  receives_->add(job_of(id, ask));
  write_id(out(), FrameType::kCredit, id);
}

void Initiator::take_data(const DataFrame& data) {
  const auto found = open_.find(data.id);
  if (found == open_.end() || found->second.is_write() || !found->second.is_inline) {
    throw WireError("data that was not asked for");
  }
  const Ask& ask = found->second;
  if (data.payload.size() != ask.part->bytes) {
    throw WireError(std::to_string(data.payload.size()) + " bytes of data for " +
                    std::to_string(ask.part->bytes));
  }
  if (!ask.transfer->released) {
    all_.inline_bytes.scatter(reinterpret_cast<const uint8_t*>(data.payload.data()), ask.places);
  }
  end_part(data.id, kSuccess);
}

void Initiator::end_part(uint64_t id, Status status) {
  const auto found = open_.find(id);
  const std::shared_ptr<Transfer> transfer = found->second.transfer;
  kept_ -= found->second.kept;
  open_.erase(found);
  part_ended(*transfer, status);
}

// While a part is open the memory of the request is in use: until then nobody is told of an error.
void Initiator::part_ended(Transfer& transfer, Status status) {
  if (transfer.error == kSuccess) transfer.error = status;
  if (--transfer.open_parts == 0) end_transfer(transfer, transfer.error);
}

void Initiator::end_transfer(Transfer& transfer, Status status) {
  if (transfer.status.load(std::memory_order_relaxed) != kInProgress) return;
  const Prepared& prepared = *transfer.prepared;
  const bool with_frame = prepared.operation == kWrite && prepared.parts.size() == 1;
  if (status == kSuccess && transfer.notifies && !with_frame) {
    write_text(out(), FrameType::kNotify, transfer.notification);
  }
  transfer.status.store(status, std::memory_order_release);
}

void Initiator::failed(Status status) {
  const auto end = [&](Transfer& transfer) {  // the data path is closed
    end_transfer(transfer, transfer.error != kSuccess ? transfer.error : status);
  };
  for (auto& [id, ask] : open_) end(*ask.transfer);
  for (Ask& ask : queued_) end(*ask.transfer);
  open_.clear();
  kept_ = 0;
  queued_.clear();
}

}  // namespace tcpx::nixl
