// What a call can read at the least cost: a clock, of whose ticks blocks of ClockPair say what they
// are, and which thread it is. (A variable of a thread is a call and four lines of cache.)
#pragma once

#include <pthread.h>
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

// By way of a signed number, which takes one instruction.
inline float span(uint64_t from, uint64_t to) {
  return static_cast<float>(static_cast<int64_t>(to - from));
}

// Differs between threads that are there together.
inline uintptr_t this_thread() {
  uintptr_t value;
#if defined(__x86_64__)
  asm("mov %%fs:0, %0" : "=r"(value));
#elif defined(__aarch64__)
  asm("mrs %0, tpidr_el0" : "=r"(value));
#else
  value = reinterpret_cast<uintptr_t>(pthread_self());
#endif
  return value;
}

}  // namespace tap
