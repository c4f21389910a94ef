#include "library/nixl/link.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/clock.h"
#include "net/printable.h"

namespace tcpx::nixl {
namespace {

// An agent without a progress thread may not look for longer than the patience: what the other
// side did meanwhile is only seen then.
constexpr double kUnwatchedS = 1;
constexpr size_t kMostLine = 1000;

}  // namespace

void report(const std::string& agent, const std::string& what) {
  fprintf(stderr, "tcpx-mpi nixl: agent %s: %s\n", printable(agent).c_str(),
          printable(what, kMostLine).c_str());
}

AgentLink::AgentLink(Surroundings& all, const char* role, const std::string& remote)
    : all_(all),
      remote_(remote),
      stream_(all.patience()),
      key_(std::string(role) + " " + std::to_string(all.next_link++)),
      last_run_ns_(now_ns()),
      last_progress_ns_(last_run_ns_) {}

AgentLink::~AgentLink() {
  close_stream(0);
  leave_path();
}

// From here on nothing touches the memory.
void AgentLink::leave_path() {
  if (std::exchange(on_path_, false)) all_.path->close(key_);
}

// The kernel forgets a socket that is closed only when no child of this process has it too.
void AgentLink::close_stream(int patience_ms) {
  if (is_watched_) epoll_ctl(all_.epoll, EPOLL_CTL_DEL, stream_.fd(), nullptr);
  is_watched_ = false;
  stream_.finish(patience_ms);
}

void AgentLink::read() {
  if (stage_ == LinkStage::kDialing || stage_ == LinkStage::kFailed) return;
  holds_frames_ = !accepts_more();
  if (holds_frames_) return;
  std::string why;
  const bool open = stream_.read(&why);
  try {
    Frame frame;
    while (stage_ != LinkStage::kFailed && !holds_frames_ &&
           stream_.reader().next(frame, sends_ ? kMaxBody : kMaxGreeting)) {
      moved_ |= frame.type != FrameType::kNotify;  // which brings no transfer to its end
      take(frame);
      holds_frames_ = !accepts_more();
    }
  } catch (const WireError& error) {
    return fail(kBackend, who() + " breaks the protocol: " + error.what());
  } catch (const std::exception& error) {
    return fail(kBackend, who() + ": " + error.what());
  }
  if (stage_ == LinkStage::kFailed) return;
  if (!open && !holds_frames_) {
    if (begins_anew()) return;
    return fail(kRemoteDisconnect, who() + " is gone: " + why);
  }
  flush();
}

bool AgentLink::run(int64_t now) {
  if (stage_ == LinkStage::kFailed) return false;
  const int64_t unwatched = now - std::exchange(last_run_ns_, now);
  if (static_cast<double>(unwatched) > std::min(kUnwatchedS, patience_s() / 4) * 1e9) {
    last_progress_ns_ += unwatched;
  }
  bool moved = false;
  if (holds_frames_ && accepts_more()) {
    read();  // no event tells of it
    if (stage_ == LinkStage::kFailed) return true;
  }
  try {
    moved = advance(now);
    if (stage_ == LinkStage::kJoining) moved |= come_up();
    for (Pump* pump : {sends_.get(), receives_.get()}) {
      if (pump == nullptr || !pump->busy() || stage_ == LinkStage::kFailed) continue;
      moved |= pump->run();
      if (pump->failed()) {
        fail(kRemoteDisconnect, who() + ": the data path failed: " + all_.path->error(key_));
        return true;
      }
    }
  } catch (const std::exception& error) {
    const bool lost = on_path_ && all_.path->stage(key_) == PathStage::kFailed;
    fail(lost ? kRemoteDisconnect : kBackend, who() + ": " + error.what());
    return true;
  }
  if (stage_ == LinkStage::kFailed) return true;
  if (stream_.backlog() > 0 && stage_ != LinkStage::kDialing) flush();
  if (moved || moved_ || (stage_ == LinkStage::kReady && !waits())) last_progress_ns_ = now;
  const bool any = moved || moved_;
  moved_ = false;
  if (static_cast<double>(now - last_progress_ns_) > patience_s() * 1e9) {
    const bool ready = stage_ == LinkStage::kReady;
    fail(kRemoteDisconnect, who() + (ready ? ": nothing has moved" : ": no connection") + " for " +
                                std::to_string(static_cast<int>(patience_s())) + " s (" +
                                (ready ? "patience_s)" : "connect_patience_s)"));
  }
  return any;
}

double AgentLink::patience_s() const {
  return stage_ == LinkStage::kReady ? all_.options.patience_s : all_.options.connect_patience_s;
}

bool AgentLink::active() const {
  if (stage_ == LinkStage::kFailed) return true;  // to be removed
  return stage_ == LinkStage::kDialing || stream_.backlog() > 0 || holds_frames_ || uses_path();
}

bool AgentLink::uses_path() const {
  return stage_ == LinkStage::kJoining || (sends_ && sends_->busy()) ||
         (receives_ && receives_->busy());
}

bool AgentLink::uses(const Region& region) const {
  return (sends_ && sends_->uses(region)) || (receives_ && receives_->uses(region));
}

void AgentLink::fail(Status status, const std::string& reason) {
  if (stage_ == LinkStage::kFailed) return;
  lost_work_ = waits() || has_unsent() || status != kRemoteDisconnect;
  stage_ = LinkStage::kFailed;
  reason_ = reason;
  say_why(reason);
  close_stream(0);
  leave_path();
  failed(status);
}

void AgentLink::end() {
  if (stage_ == LinkStage::kFailed) return;
  stage_ = LinkStage::kFailed;
  reason_ = "closed";
  close_stream(200);
  leave_path();
  failed(kRemoteDisconnect);
}

void AgentLink::flush() {
  std::string why;
  if (!stream_.flush(&why)) fail(kRemoteDisconnect, who() + " is gone: " + why);
}

void AgentLink::gather_into(char* to, const std::vector<RegionRange>& places, size_t frame_at) {
  try {
    all_.inline_bytes.gather(places, reinterpret_cast<uint8_t*>(to));
  } catch (...) {
    out().resize(frame_at);
    throw;
  }
}

void AgentLink::greet(FrameType type, const Token& attempt, const Token& secret,
                      const Token& challenge) {
  Greeting greeting;
  greeting.attempt = attempt;
  greeting.terms = all_.terms;
  greeting.engine = engine_of(all_.token);
  greeting.sender = all_.agent;
  greeting.target = remote_;
  greeting.path_info = listen();
  write_proven(out(), type, greeting, secret, challenge);
}

std::string AgentLink::listen() {
  on_path_ = true;
  return all_.path->listen(key_);
}

void AgentLink::join(const Greeting& greeting) {
  listen();
  all_.path->join(key_, greeting.path_info);
  sends_ = std::make_unique<Pump>(*all_.path, key_, true, all_.options.stage_bytes);
  receives_ = std::make_unique<Pump>(*all_.path, key_, false, all_.options.stage_bytes);
  stage_ = LinkStage::kJoining;
}

bool AgentLink::come_up() {
  const PathStage path = all_.path->stage(key_);
  if (path == PathStage::kFailed) {
    fail(kBackend, who() + ": the data path does not come up: " + all_.path->error(key_));
    return true;
  }
  bool moved = false;
  if (!begun_here_ && all_.path->begun(key_)) {
    begun_here_ = moved = true;
    tell_begun();
    may_accept();
  }
  if (path == PathStage::kConnected && !up_here_ && stage_ == LinkStage::kJoining) {
    up_here_ = moved = true;
    write_up(out());
    if (up_there_) stage_ = LinkStage::kReady;
  }
  return moved;
}

void AgentLink::take_begun() {
  if (stage_ != LinkStage::kJoining || begun_there_) throw WireError("a second \"begun\"");
  begun_there_ = true;
  may_accept();
}

void AgentLink::may_accept() {
  if (begun_here_ && begun_there_ && stage_ == LinkStage::kJoining) all_.path->accept(key_);
}

void AgentLink::take_up() {
  if (stage_ != LinkStage::kJoining || !begun_there_ || up_there_) {
    throw WireError("an \"up\" that is not due");
  }
  up_there_ = true;
  if (up_here_) stage_ = LinkStage::kReady;
}

}  // namespace tcpx::nixl
