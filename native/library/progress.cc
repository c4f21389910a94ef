// Who makes progress: calls of the library, or its thread; and how others wait for that thread.
#include <sched.h>
#include <time.h>

#include <algorithm>

#include "engine/clock.h"
#include "library/outlived.h"
#include "library/state.h"

namespace tcpx_p2p {
namespace {

constexpr uint32_t kSpinsBeforeYield = 20;
constexpr uint32_t kRoundsBeforeSleep = 4000;          // of a few microseconds each
constexpr auto kLook = std::chrono::milliseconds(50);  // between two looks of who waits

void pause_for(long nanoseconds) {
  const timespec pause{0, nanoseconds};
  nanosleep(&pause, nullptr);
}

}  // namespace

bool SessionState::progress() {
  bool moved = false;
  tcpx::SetupRound setup;
  const auto remotes = snapshot();  // kept for as long as it is gone through
  for (const Remote& remote : *remotes) moved |= remote->advance(setup);
  if (setup.over()) {
    for (const Remote& remote : *remotes) moved |= remote->accept();
  }
  moved |= leftovers_->advance();
  return outlived::advance() || moved;
}

bool SessionState::anything_under_way() const {
  if (leftovers_->count() + outlived::count() > 0) return true;
  const auto remotes = snapshot();
  for (const Remote& remote : *remotes) {
    if (remote->link().transferring() || remote->link().connecting()) return true;
  }
  return false;
}

void SessionState::run() {
  uint32_t idle = 0;
  for (;;) {
    if (closed_) return;
    if (callers_ > 0) sched_yield();  // let them have the locks
    const bool moved = progress();
    if (moved || idle % 64 == 63) {  // the latter for faults, and remotes that are closed
      if (waiters_ > 0) {
        const std::lock_guard<std::mutex> lock(wait_mutex_);
        moved_.notify_all();
      }
    }
    idle = moved ? 0 : idle + 1;
    if (idle > kSpinsBeforeYield) sched_yield();  // the plugin's threads may need this core
    if (idle < kRoundsBeforeSleep) continue;
    sleeps_ = true;
    if (anything_under_way()) {
      sleeps_ = false;
      pause_for(50'000);
      continue;
    }
    std::unique_lock<std::mutex> lock(wait_mutex_);
    wanted_.wait(lock, [&] { return stops_ || !sleeps_; });
    sleeps_ = false;
    idle = 0;
  }
}

// After something was given to the thread to do.
void SessionState::wake() {
  if (!sleeps_) return;
  {
    const std::lock_guard<std::mutex> lock(wait_mutex_);
    sleeps_ = false;
  }
  wanted_.notify_all();
}

tcpx::WaitResult SessionState::wait_for_thread(RemoteState& remote, uint64_t transfer,
                                               int64_t patience_ns) {
  const int64_t start = tcpx::now_ns();
  std::unique_lock<std::mutex> lock(wait_mutex_);
  const Counted waiting(waiters_);
  for (;;) {
    int64_t progressed = 0;
    switch (remote.link().look(transfer, &progressed)) {
      case tcpx::TransferState::kComplete:
        return tcpx::WaitResult::kComplete;
      case tcpx::TransferState::kFailed:
        return tcpx::WaitResult::kFailed;
      case tcpx::TransferState::kActive:
        break;
    }
    if (closed_ || remote.stage() == RemoteStage::kClosed) return tcpx::WaitResult::kClosed;
    const int64_t left = std::max(progressed, start) + patience_ns - tcpx::now_ns();
    if (left < 0) return tcpx::WaitResult::kStalled;
    moved_.wait_for(lock,
                    std::min<std::chrono::nanoseconds>(
                        kLook, std::chrono::nanoseconds(left) + std::chrono::microseconds(50)));
    call_hook(lock);
  }
}

void SessionState::await_thread(RemoteState& remote, std::optional<tcpx::Direction> direction,
                                int64_t patience_ns) {
  int64_t last_progress = tcpx::now_ns();
  size_t before = SIZE_MAX;
  std::unique_lock<std::mutex> lock(wait_mutex_);
  const Counted waiting(waiters_);
  for (;;) {
    if (closed_ || remote.stage() == RemoteStage::kClosed) throw tcpx::SessionClosed();
    if (remote.link().pending(direction) == 0) return remote.link().close_listeners();
    remote.require_alive();
    const size_t left = remote.link().pending(std::nullopt);
    const int64_t now = tcpx::now_ns();
    if (left < before) last_progress = now;
    before = left;
    if (now - last_progress > patience_ns) {
      throw tcpx::ConnectTimeout(
          remote.link().describe_late(static_cast<double>(patience_ns) / 1e9));
    }
    moved_.wait_for(
        lock, std::min<std::chrono::nanoseconds>(
                  kLook, std::chrono::nanoseconds(patience_ns) + std::chrono::microseconds(50)));
    call_hook(lock);
  }
}

// With no lock held.
void SessionState::call_hook(std::unique_lock<std::mutex>& lock) {
  if (!options_.while_waiting) return;
  lock.unlock();
  options_.while_waiting();
  lock.lock();
}

}  // namespace tcpx_p2p
