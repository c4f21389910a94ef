#include "softtcpx/transfer/traps.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace softtcpx {
namespace {

// Longer than this nobody waits for a message: a batch has ended meanwhile.
constexpr int64_t kLongestPause = 1000000;

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// -1 if no launcher has numbered this process.
int64_t own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') return std::strtoll(text, nullptr, 10);
  }
  return -1;
}

}  // namespace

bool TrapState::armed(const Traps& traps, bool sends) {
  const bool any = traps.sizes > 0 || traps.oversize > 0 || traps.busy_null > 0 ||
                   traps.queue > 0 || traps.error_at >= 0 || traps.delay > 0 || traps.slow_us > 0 ||
                   traps.lost_at >= 0 || traps.corrupt_at >= 0 || traps.duplicate_at >= 0 ||
                   traps.reorder_at >= 0 || traps.stop_at >= 0 || traps.exit_at >= 0 ||
                   traps.leak_at >= 0 || traps.slow_percent > 0 || traps.polls > 0 ||
                   traps.late_counts > 0 || traps.younger > 0 || traps.lost_peer > 0 ||
                   traps.warn_receives > 0;
  const bool this_side = traps.side == TrapSide::kBoth || (traps.side == TrapSide::kSend) == sends;
  return any && this_side && (traps.rank < 0 || traps.rank == own_rank());
}

TrapState::Post TrapState::on_post(uint64_t outstanding) {
  if (failed_) return Post::kFailed;
  if (traps_.queue > 0 && outstanding >= static_cast<uint64_t>(traps_.queue)) return Post::kFull;
  if (traps_.busy_null > 0 && ++posts_ % traps_.busy_null == 0) return Post::kBusy;
  return Post::kGo;
}

TrapState::Answer TrapState::on_test(uint64_t sequence, bool completed) {
  if (is(traps_.error_at, sequence)) {
    failed_ = true;
    return Answer::kFailed;
  }
  switch (ending_.load(std::memory_order_acquire)) {
    case Ending::kClosed:
      ending_.store(Ending::kTold, std::memory_order_relaxed);
      return Answer::kLost;
    case Ending::kTold:
      ending_.store(Ending::kPast, std::memory_order_relaxed);
      return Answer::kNotYet;
    default:
      break;
  }
  if (!completed) return Answer::kGo;
  if (is(traps_.lost_at, sequence)) return Answer::kNotYet;
  if (tests_++ < traps_.delay) return Answer::kNotYet;
  if (traps_.slow_us > 0) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_answer_) return Answer::kNotYet;
    next_answer_ = now + std::chrono::microseconds(traps_.slow_us);
  }
  tests_ = polls_ = 0;
  return Answer::kGo;
}

// If one connection is slowed and messages come one by one, in one piece each (a ping-pong of up to
// 32 KiB over loopback), a message takes that much longer.
void TrapState::slow_down() {
  const int64_t now = now_ns();
  if (moved_ns_ != 0) {
    const int64_t until =
        now + std::min(now - moved_ns_, kLongestPause) * traps_.slow_percent / 100;
    while (now_ns() < until) {
    }
  }
  moved_ns_ = now_ns();
}

void TrapState::after_progress(uint64_t sequence) {
  if (traps_.exit_at >= 0 && sequence >= static_cast<uint64_t>(traps_.exit_at)) ::exit(1);
  if (traps_.slow_percent > 0) slow_down();
}

TrapState::Damage TrapState::damage(uint64_t sequence) const {
  return {is(traps_.corrupt_at, sequence), is(traps_.duplicate_at, sequence),
          is(traps_.reorder_at, sequence)};
}

}  // namespace softtcpx
