#include "machine/ceiling.h"

#include <algorithm>
#include <cstring>

#include "engine/clock.h"
#include "memory/buffer.h"

namespace tcpx {

std::vector<int64_t> time_copies(size_t bytes, size_t footprint, int rounds) {
  const size_t slots = std::max<size_t>(1, footprint / std::max<size_t>(bytes, 1));
  HostBuffer from(slots * bytes);
  HostBuffer to(slots * bytes);
  std::vector<int64_t> times(static_cast<size_t>(rounds));
  for (size_t i = 0; i < slots; ++i) memcpy(to.data() + i * bytes, from.data() + i * bytes, bytes);
  for (size_t i = 0; i < times.size(); ++i) {
    const size_t at = (i % slots) * bytes;
    const int64_t start = now_ns();
    memcpy(to.data() + at, from.data() + at, bytes);
    // The compiler must believe that somebody reads what was copied.
    asm volatile("" : : "r"(to.data() + at) : "memory");
    times[i] = now_ns() - start;
  }
  return times;
}

ClockCost clock_cost() {
  constexpr int kCalls = 100'000;
  int64_t smallest = INT64_MAX;
  const int64_t start = now_ns();
  int64_t last = start;
  for (int i = 0; i < kCalls; ++i) {
    const int64_t now = now_ns();
    if (now > last) smallest = std::min(smallest, now - last);
    last = now;
  }
  return {static_cast<double>(last - start) / kCalls, smallest};
}

Interruptions interruptions(int64_t duration_ns) {
  constexpr int64_t kGapNs = 1000;
  Interruptions found{};
  const int64_t start = now_ns();
  int64_t last = start;
  while (last - start < duration_ns) {
    const int64_t now = now_ns();
    const int64_t gap = now - last;
    if (gap > kGapNs) {
      found.lost_ns += gap;
      found.longest_ns = std::max(found.longest_ns, gap);
      ++found.count;
    }
    last = now;
  }
  found.watched_ns = last - start;
  return found;
}

namespace {

// A chain of dependent steps, so that it takes as long as it takes and cannot be shortened.
uint64_t work(uint64_t state, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
  return state;
}

}  // namespace

std::vector<int64_t> time_equal_work(int pieces, int64_t piece_ns) {
  constexpr int64_t kTrial = 1'000'000;
  const int64_t begun = now_ns();
  volatile uint64_t sink = work(1, kTrial);
  const int64_t trial_ns = std::max<int64_t>(now_ns() - begun, 1);
  const int64_t steps = std::max<int64_t>(kTrial * piece_ns / trial_ns, 1);
  std::vector<int64_t> times(static_cast<size_t>(pieces));
  for (int64_t& time : times) {
    const int64_t start = now_ns();
    sink = work(sink, steps);
    time = now_ns() - start;
  }
  return times;
}

}  // namespace tcpx
