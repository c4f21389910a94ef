// From where in a plugin lines come: (function, line) is a place. It is looked up before anything
// is formatted, without a lock, so that a line that repeats costs a few counters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace tcpx::plugin_log {

constexpr size_t kLineBytes = 512;
constexpr int kPlaces = 512;
constexpr int kNoPlace = -1;
constexpr int kElsewhere = kPlaces;  // stands for all for which there was no room

struct LogSite {
  std::atomic<const char*> function{nullptr};  // set last; plugins pass constants, which are equal
  int line = 0;
  int level = 0;                      // of its first line
  std::atomic<uint64_t> warnings{0};  // of level WARN
  std::atomic<int64_t> warned_ns{0};  // the last of them, of coarse_ns()
  std::atomic<uint64_t> seen{0};      // of any level, outside of batches
  std::atomic<uint64_t> to_print{0};  // that were to be printed
  std::atomic<uint64_t> told_of{0};   // of those, when it was last said how many there were
  char text[kLineBytes] = {};         // of its first line
};

// Within kCoarseNs of CLOCK_MONOTONIC, for a few nanoseconds: a plugin may warn without end.
constexpr int64_t kCoarseNs = 10'000'000;
inline int64_t coarse_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// Linear probing from a hash; the last one is kElsewhere's.
inline LogSite g_places[kPlaces + 1];
inline LogSite& place_at(int number) { return g_places[number]; }
inline size_t first_place_of(const char* function, int line) {
  const auto address = reinterpret_cast<uintptr_t>(function);
  return ((address >> 3) * 31 + static_cast<size_t>(line)) % kPlaces;
}

// Its number, kElsewhere where there is no room for it, kNoPlace where it is new.
inline int find_place(const char* function, int line) {
  for (size_t i = first_place_of(function, line);; i = (i + 1) % kPlaces) {
    const char* known = g_places[i].function.load(std::memory_order_acquire);
    if (known == nullptr) break;
    if (known == function && g_places[i].line == line) return static_cast<int>(i);
  }
  const bool full = g_places[kElsewhere].function.load(std::memory_order_acquire) != nullptr;
  return full ? kElsewhere : kNoPlace;
}
// The number of a new one, by the text of its first line.
int add_place(const char* function, int line, int level, const char* text);

// Of each that is known, kElsewhere last.
template <typename F>
void for_each_place(F&& f) {
  for (int i = 0; i <= kPlaces; ++i) {
    LogSite& place = place_at(i);
    if (place.function.load(std::memory_order_acquire) != nullptr) f(place);
  }
}

}  // namespace tcpx::plugin_log
