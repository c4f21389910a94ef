// What this machine can do at best, beside which results are read: memory copies and the clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tcpx {

// Nanoseconds of each of `rounds` copies of `bytes`, source and destination walking through
// `footprint` bytes each: a footprint beyond the cache makes every copy one from memory to memory.
std::vector<int64_t> time_copies(size_t bytes, size_t footprint, int rounds);

struct ClockCost {
  double ns_a_call;       // mean of many calls of now_ns()
  int64_t resolution_ns;  // the smallest step seen
};
ClockCost clock_cost();

}  // namespace tcpx
