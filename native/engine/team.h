// What loops share that run one batch together, each on a thread of its own, with the flows of some
// channels. A chunk may wait for those of another loop, and an iteration begins when all have ended
// the one before. Counters, no lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tcpx {

class Team {
 public:
  explicit Team(size_t size) : size_(size), members_(new Member[size]) {}

  // Before each batch, while no member runs.
  void begin() {
    for (size_t i = 0; i < size_; ++i) members_[i].open.store(0, std::memory_order_relaxed);
    std::fill(counters_.begin(), counters_.end(), 0);
    running_.store(size_, std::memory_order_relaxed);
    begun_.store(false, std::memory_order_relaxed);
  }
  void set_counters(size_t count) { counters_.assign(count, 0); }
  uint64_t* counters() { return counters_.data(); }

  // A member's oldest iteration that is not complete, and the oldest of all.
  void publish(size_t member, uint64_t open) {
    members_[member].open.store(open, std::memory_order_release);
  }
  uint64_t open() const {
    uint64_t least = members_[0].open.load(std::memory_order_acquire);
    for (size_t i = 1; i < size_; ++i) {
      least = std::min(least, members_[i].open.load(std::memory_order_acquire));
    }
    return least;
  }

  void note_progress(int64_t ns) { progress_.store(ns, std::memory_order_relaxed); }
  int64_t last_progress() const { return progress_.load(std::memory_order_relaxed); }

  // True for the first member that runs, and for the last that ends.
  bool is_first() { return !begun_.exchange(true, std::memory_order_acq_rel); }
  bool is_last() { return running_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  // Somebody wants to see where all flows stand; how often that was so.
  void ask_for_pictures() { pictures_.fetch_add(1, std::memory_order_relaxed); }
  uint32_t pictures_asked_for() const { return pictures_.load(std::memory_order_relaxed); }

  // The first one counts; the others end for it.
  void fail(size_t member) {
    int none = kNone;
    failed_.compare_exchange_strong(none, static_cast<int>(member), std::memory_order_acq_rel);
  }
  static constexpr int kNone = -1;
  int failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  struct alignas(64) Member {
    std::atomic<uint64_t> open{0};
  };
  const size_t size_;
  std::unique_ptr<Member[]> members_;
  std::vector<uint64_t> counters_;  // completed chunks, by counter of the whole program
  alignas(64) std::atomic<int64_t> progress_{0};
  std::atomic<size_t> running_{0};
  std::atomic<bool> begun_{false};
  std::atomic<uint32_t> pictures_{0};
  std::atomic<int> failed_{kNone};
};

}  // namespace tcpx
