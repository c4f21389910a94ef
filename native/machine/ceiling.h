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

// What others took from a thread that does nothing but read the clock for `duration_ns`: every gap
// between two readings of more than a microsecond.
struct Interruptions {
  int64_t watched_ns;
  int64_t lost_ns;
  int64_t longest_ns;
  int64_t count;
};
Interruptions interruptions(int64_t duration_ns);

// Nanoseconds of each of `pieces` equal pieces of work, about `piece_ns` each: what differs between
// them is the machine's noise.
std::vector<int64_t> time_equal_work(int pieces, int64_t piece_ns);

}  // namespace tcpx
