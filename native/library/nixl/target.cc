#include "library/nixl/target.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "library/nixl/listener.h"
#include "net/printable.h"

namespace tcpx::nixl {
namespace {

constexpr size_t kMostOpen = 4096;
constexpr size_t kMostBacklog = 8 << 20;
constexpr uint64_t kMostUnfetched = 16 << 20;  // bytes of notifications of one remote
constexpr uint64_t kMostNotificationBytes = 256 << 20;
// So many descriptors stay the program's, or an eighth of those that it may have.
constexpr rlim_t kDescriptorsLeft = 64;
constexpr rlim_t kDescriptorsShare = 8;

// How many this process may have, where a remote would leave it too few; else 0.
rlim_t short_of_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  const rlim_t left = std::min(kDescriptorsLeft, limit.rlim_cur / kDescriptorsShare);
  // The lowest that is free, from there on: the first one, if no more than those below are taken.
  const rlim_t lowest = limit.rlim_cur - left;
  if (lowest > INT_MAX) return 0;
  static std::mutex asks;  // other agents of this process would find ours
  const std::lock_guard<std::mutex> alone(asks);
  const Socket free(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, static_cast<int>(lowest)));
  return free.fd() == static_cast<int>(lowest) ? 0 : limit.rlim_cur;
}

}  // namespace

Target::Target(Surroundings& all, Socket connected)
    : AgentLink(all, "of", ""), address_(peer_address(connected.fd())) {
  if (!random_token(&challenge_)) throw std::runtime_error("no random numbers are to be had");
  stream_ = Stream(std::move(connected), all.patience());
  write_challenge(out(), challenge_);
  flush();
}

std::string Target::who() const {
  return is_proven_ ? AgentLink::who() : "a connection from " + address_;
}

bool Target::uses(const Region& region) const {
  return AgentLink::uses(region) || std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
           return entry.second.job && names(entry.second.job->places, region);
         });
}

// Who does not take our answers, or notifies of more than is fetched, waits.
bool Target::accepts_more() const {
  return stream_.backlog() <= kMostBacklog && unfetched_bytes_ <= kMostUnfetched &&
         all_.notification_bytes <= kMostNotificationBytes;
}

void Target::take(const Frame& frame) {
  const bool is_ready = stage_ == LinkStage::kReady;
  switch (frame.type) {
    case FrameType::kHello:
      return take_hello(frame);
    case FrameType::kBegun:
      read_text(frame.body, 0);
      return take_begun();
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
        const uint64_t id = read_id(frame.body);
        const auto found = open_.find(id);
        if (found == open_.end() || !found->second.job) throw WireError("a cancel of nothing");
        return end_open(id);
      }
      break;
    case FrameType::kNotify:
      if (is_ready) return note(read_text(frame.body, kMaxNotification));
      break;
    default:
      break;
  }
  throw WireError("a frame of type " + std::to_string(static_cast<int>(frame.type)) +
                  ", which is not due");
}

void Target::take_hello(const Frame& frame) {
  if (stage_ != LinkStage::kGreeting || sends_) throw WireError("a second hello");
  const std::optional<Greeting> proven = read_proven(frame, all_.token, challenge_);
  if (!proven) return refuse("this is not the engine that the metadata is of: load it again");
  const Greeting& greeting = *proven;
  is_proven_ = true;
  remote_ = greeting.sender;
  attempt_ = greeting.attempt;
  engine_ = greeting.engine;
  if (!is_utf8(remote_)) {
    return refuse("an agent whose name is no UTF-8 has notifications that Python cannot read");
  }
  for (const Token& revoked : all_.revoked) {
    if (same_token(engine_of(revoked), engine_)) {
      return refuse("the metadata of agent " + remote_ + " was invalidated here");
    }
  }
  if (greeting.target != all_.agent) {
    return refuse("this is agent " + all_.agent + ", not " + greeting.target);
  }
  const std::string differs = difference(all_.terms, greeting.terms);
  if (!differs.empty()) return refuse(differs);
  if (const rlim_t limit = short_of_descriptors()) {
    return refuse("agent " + all_.agent +
                  " has too few descriptors left for one more remote (it "
                  "may have " +
                  std::to_string(limit) + ": ulimit -n)");
  }
  try {
    join(greeting);
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

void Target::tell_begun() {
  greet(FrameType::kWelcome, attempt_, all_.token, challenge_);
  is_answered_ = true;
}

void Target::refuse(const std::string& reason) {
  is_answered_ = true;
  write_text(out(), FrameType::kRefuse, reason.substr(0, kMaxReason));
  fail(kNotAllowed, who() + " was refused: " + reason);
}

// Else it would dial again.
void Target::say_why(const std::string& reason) {
  if (is_proven_ && !is_answered_) {
    write_text(out(), FrameType::kRefuse, reason.substr(0, kMaxReason));
  }
}

void Target::note(std::string_view text) {
  unfetched_bytes_ += sizeof(Notifications::value_type) + remote_.size() + text.size();
  all_.notify(remote_, text);
}

void Target::begin_open(const TransferFrame& transfer, std::shared_ptr<Job> job) {
  const size_t kept = target_state_bytes(transfer.segments.size(), transfer.notification.size());
  kept_ += kept;
  open_.emplace(transfer.id, Open{std::move(job), kept});
}

void Target::end_open(uint64_t id) {
  const auto found = open_.find(id);
  kept_ -= found->second.kept;
  open_.erase(found);
}

std::shared_ptr<Job> Target::checked(const TransferFrame& transfer) {
  if (open_.size() >= kMostOpen || open_.count(transfer.id) > 0) {
    throw WireError("transfer " + std::to_string(transfer.id) + " is one too many");
  }
  if (kept_ + target_state_bytes(transfer.segments.size(), transfer.notification.size()) >
      2 * kMostKept) {
    throw WireError("transfers of more than " + std::to_string(2 * kMostKept >> 20) +
                    " MiB of places and notifications at the same time");
  }
  auto job = std::make_shared<Job>();
  job->places.reserve(transfer.segments.size());
  DoneFrame refusal{transfer.id, kNotAllowed, ""};
  std::string why;
  uint64_t total = 0;
  for (const Segment& segment : transfer.segments) {
    std::shared_ptr<Region> region = all_.regions.find(segment, &why);
    if (region && segment.bytes == 0) why = "a segment of 0 bytes";
    if (region && region->on_gpu && transfer.stages) {
      why = "memory of a GPU, which takes no gathered messages";
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
    for (const RegionRange& place : job->places) total += place.bytes();
    if (transfer.payload.size() != total) {
      throw WireError(std::to_string(transfer.payload.size()) + " bytes for segments of " +
                      std::to_string(total));
    }
    all_.inline_bytes.scatter(reinterpret_cast<const uint8_t*>(transfer.payload.data()),
                              job->places);
    if (transfer.notifies) note(transfer.notification);
    return write_done(out(), {transfer.id, kSuccess, ""});
  }
  job->done = [this, id = transfer.id, notifies = transfer.notifies,
               text = std::string(transfer.notification)] {
    if (notifies) note(text);
    write_done(out(), {id, kSuccess, ""});
    end_open(id);
  };
  begin_open(transfer, nullptr);
  receives_->add(job);
  write_id(out(), FrameType::kCredit, transfer.id);
}

void Target::serve_read(const TransferFrame& transfer) {
  const std::shared_ptr<Job> job = checked(transfer);
  if (!job) return;
  if (transfer.is_inline || job->places.empty()) {
    uint64_t total = 0;
    for (const RegionRange& place : job->places) total += place.bytes();
    const size_t frame_at = out().size();
    char* to = write_data(out(), transfer.id, total);
    return gather_into(to, job->places, frame_at);
  }
  job->done = [this, id = transfer.id] { end_open(id); };
  begin_open(transfer, job);
  write_id(out(), FrameType::kGrant, transfer.id);
}

void Target::granted_credit(uint64_t id) {
  const auto found = open_.find(id);
  if (found == open_.end() || !found->second.job) throw WireError("a credit for nothing");
  sends_->add(std::move(found->second.job));
  found->second.job = nullptr;
}

}  // namespace tcpx::nixl
