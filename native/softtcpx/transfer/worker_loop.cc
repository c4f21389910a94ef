// What a worker does with its connections: a connection has its worker, and only this file has
// both.
#include <sched.h>

#include <algorithm>
#include <chrono>

#include "softtcpx/environment/trace.h"
#include "softtcpx/transfer/comm.h"
#include "softtcpx/transfer/worker.h"

namespace softtcpx {
namespace {

constexpr int kParkMs = 100;  // a sleeping worker looks around this often, whatever happens
constexpr int kTriesAYield = 16;

}  // namespace

void Worker::park() {
  const auto any = [&](auto holds) { return std::any_of(comms_.begin(), comms_.end(), holds); };
  const auto wants = [](const Comm* comm) { return comm->wants_worker(); };
  const bool watches = any(wants);
  state_.store(watches ? State::kWatching : State::kAsleep, std::memory_order_seq_cst);
  // A request posted before this store is seen here; one posted after it wakes us.
  const bool news = changed_.load(std::memory_order_seq_cst) || (!watches && any(wants)) ||
                    any([](const Comm* comm) { return comm->has_news(); });
  if (!news && watches) poller_.wait(kParkMs);
  if (!news && !watches) poller_.wait_for_wake(kParkMs);
  state_.store(State::kAwake, std::memory_order_seq_cst);
  if (!news && is_traced()) {
    for (const Comm* comm : comms_) comm->note_woken();
  }
}

void Worker::run() {
  using Clock = std::chrono::steady_clock;
  const auto spin = std::chrono::microseconds(spin_us_);
  Clock::time_point idle_since = Clock::now();
  for (int tries = 1;; ++tries) {
    if (changed_.load(std::memory_order_acquire) && !take_changes()) return;
    bool moved = false;
    for (Comm* comm : comms_) moved |= comm->has_pending() && comm->drive();
    if (moved) {
      idle_since = Clock::now();
      continue;
    }
    if (tries % kTriesAYield == 0) ::sched_yield();
    if (Clock::now() - idle_since < spin) continue;
    park();
    idle_since = Clock::now();
  }
}

}  // namespace softtcpx
