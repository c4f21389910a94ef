// Records on their way from the thread that makes calls to whoever writes them down. One puts, one
// takes; nobody waits: what finds no room is counted.
#pragma once

#include <atomic>
#include <cstdint>

#include "tap/layout.h"

namespace tap {

class Ring {
 public:
  // `records`: room for `capacity`, a power of two.
  Ring(Record* records, uint64_t capacity, uint32_t thread)
      : records_(records), mask_(capacity - 1), thread(thread) {}

  void put(const Record& record) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (__builtin_expect(head - tail_seen_ > mask_, false)) {
      tail_seen_ = tail_.load(std::memory_order_acquire);
      if (head - tail_seen_ > mask_) {
        lost.store(lost.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
      }
    }
    records_[head & mask_] = record;
    // A round of the ring is more than a cache holds: without this the store waits for its line,
    // and the next locked instruction waits for the store.
    __builtin_prefetch(&records_[(head + kAhead) & mask_], 1);
    head_.store(head + 1, std::memory_order_release);
  }

  // Hands what is there to `use(records, count)`, in at most two pieces.
  template <class Use>
  void take(Use use) {
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    const uint64_t head = head_.load(std::memory_order_acquire);
    while (tail != head) {
      const uint64_t at = tail & mask_;
      const uint64_t piece = head - tail < mask_ + 1 - at ? head - tail : mask_ + 1 - at;
      use(records_ + at, piece);
      tail += piece;
      tail_.store(tail, std::memory_order_release);
    }
  }
  bool empty() const {
    return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kAhead = 16;

  Record* const records_;
  const uint64_t mask_;
  std::atomic<uint64_t> head_{0};
  uint64_t tail_seen_ = 0;  // the putter's
  alignas(64) std::atomic<uint64_t> tail_{0};

 public:
  const uint32_t thread;
  std::atomic<uint64_t> lost{0};
  // The thread that puts, by this_thread(); 0: it is gone, and another may have the ring.
  std::atomic<uintptr_t> owner{0};
};

}  // namespace tap
