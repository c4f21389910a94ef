// What makes progress where nobody asks for any.
#include <sys/epoll.h>
#include <time.h>

#include <exception>

#include "engine/clock.h"
#include "library/nixl/core.h"

namespace tcpx::nixl {
namespace {

constexpr int64_t kSpinNs = 200'000;  // after something moved
constexpr int64_t kBusyBeforeNapNs = 2'000'000;
constexpr long kNapNs = 50'000;
constexpr uint64_t kCallersBusy = 3;  // rounds of callers during a nap: they do all there is to do
constexpr int kSleepMs = 50;          // deadlines are looked at in between

void nap(long duration_ns = kNapNs) {
  const timespec pause{0, duration_ns};
  nanosleep(&pause, nullptr);
}

}  // namespace

void Core::work() {
  int64_t moved_at = now_ns();
  uint64_t seen = caller_rounds_.load(std::memory_order_relaxed);
  while (!stop_) {
    const uint64_t rounds = caller_rounds_.load(std::memory_order_relaxed);
    if (rounds - seen >= kCallersBusy) {
      seen = rounds;
      nap();
      continue;
    }
    seen = rounds;
    bool moved = false, failed = false, busy;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      try {
        moved = round();
      } catch (const std::exception& error) {  // no memory, mostly; nobody above would hear of it
        report(all_.agent, error.what());
        failed = true;
      }
      busy = active();
      if (!moved && !busy && !failed) sleeping_ = true;  // who begins something wakes us
    }
    if (failed) {  // without the lock; else the same would be told thousands of times a second
      nap(kSleepMs * 1'000'000L);
      continue;
    }
    const int64_t now = now_ns();
    if (moved) moved_at = now;
    if (now - moved_at < (busy ? kBusyBeforeNapNs : kSpinNs)) {
      sched_yield();
    } else if (busy) {
      nap();
    } else {
      epoll_event event;
      epoll_wait(epoll_.fd(), &event, 1, kSleepMs);
    }
    sleeping_ = false;
  }
}

}  // namespace tcpx::nixl
