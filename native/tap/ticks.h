// The cheapest clock that a call can read; blocks of ClockPair say what its ticks are.
#pragma once

#include <time.h>

#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tap {

inline int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return static_cast<uint64_t>(read_clock(CLOCK_MONOTONIC));
#endif
}

}  // namespace tap
