#include "peers/ceiling.h"

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

}  // namespace tcpx
