// The CPU's side of a kernel that stays (staying.cu): it writes the letters, and knows when the
// kernel is gone and another one has to be launched. Whoever has the driver launches it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "staying/letter.h"

namespace tcpx {

class Letters {
 public:
  static constexpr size_t kBytes = 4096 + kLetters * kLetterBytes;  // of page-locked memory
  static constexpr uint64_t kStayNs = 5'000'000;

  // `memory`: zeroed, at a page; a GPU sees it at `seen`. Numbers are told at `told_at` of the GPU.
  Letters(uint8_t* memory, uint64_t seen, uint64_t told_at, uint64_t linger_ns)
      : memory_(memory), seen_(seen), told_at_(told_at), linger_ns_(linger_ns) {}

  // Whether so many more have a place.
  bool has_room(uint64_t more) const { return sent() - done() + more <= kLetters; }
  // Whether such a copy can be asked for.
  static bool can_say(uint64_t from, uint64_t to, uint64_t bytes) {
    return (from | to) <= kPlaceMask && bytes <= kMostCopyBytes;
  }

  // The next letter: its copies, kMostCopies of them at most, and then off with it. `told`: the
  // number that the GPU writes behind them, of 48 bits.
  void add(uint64_t from, uint64_t to, uint32_t bytes) { write(1 + copies_++, from, to, bytes); }
  void send(uint64_t told) {
    if (mark_of(sent()) == 1) {  // lines that this place has had long ago have the same marks
      for (unsigned line = 1 + copies_; line < kLetterLines; ++line) put(line, {0, 0});
    }
    write(0, copies_, told, 0);
    copies_ = 0;
    sent_.store(sent() + 1, std::memory_order_relaxed);
  }

  // Whoever asks: nobody looks at what was sent.
  bool needs_kernel() const { return is_gone() && done() != sent(); }
  // The next kernel, once the one before is gone.
  StayingArguments next_kernel() {
    const uint64_t generation = generation_.load(std::memory_order_relaxed) + 1;
    generation_.store(generation, std::memory_order_relaxed);
    return {seen_ + kFirst, told_at_,   seen_,      seen_ + kGone,
            done(),         generation, linger_ns_, kStayNs};
  }
  // It could not be launched.
  void no_kernel() {
    generation_.store(generation_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kGone = 128, kFirst = 4096;

  uint64_t* at(size_t offset) const { return reinterpret_cast<uint64_t*>(memory_ + offset); }
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  uint64_t done() const { return __atomic_load_n(at(0), __ATOMIC_ACQUIRE); }
  bool is_gone() const {
    return __atomic_load_n(at(kGone), __ATOMIC_ACQUIRE) ==
           generation_.load(std::memory_order_relaxed);
  }
  void write(unsigned line, uint64_t from, uint64_t to, uint32_t bytes) {
    put(line, letter_line(sent(), from, to, bytes));
  }
  void put(unsigned line, const LetterLine& said) {
    uint64_t* words = at(kFirst + sent() % kLetters * kLetterBytes + line * sizeof(LetterLine));
    __atomic_store_n(words, said.from, __ATOMIC_RELEASE);
    __atomic_store_n(words + 1, said.to, __ATOMIC_RELEASE);
  }

  uint8_t* const memory_;
  const uint64_t seen_, told_at_, linger_ns_;
  std::atomic<uint64_t> sent_{0}, generation_{0};
  unsigned copies_ = 0;  // of the letter that is being written
};

}  // namespace tcpx
