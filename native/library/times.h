// Timeouts as callers give them.
#pragma once

#include <cstdint>

namespace tcpx_p2p {

constexpr double kLongestWaitS = 1e9;  // thirty years, which nanoseconds in 64 bits can still tell

// Negative: the default. What is not finite is the longest.
inline double patience_s(double asked_s, double default_s) {
  const double chosen = asked_s < 0 ? default_s : asked_s;
  return chosen < kLongestWaitS ? chosen : kLongestWaitS;
}
inline int64_t in_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace tcpx_p2p
