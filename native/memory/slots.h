// Memory cut into slots, as a row wants it, on the host or on a GPU: filled, poisoned and judged
// where it lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/buffer.h"
#include "memory/elements.h"
#include "memory/payload.h"

namespace tcpx {

class SlotMemory {
 public:
  virtual ~SlotMemory() = default;

  // Throws std::invalid_argument where the slots do not fit.
  void cut(size_t used, size_t guard, size_t stride, size_t count);
  const Slots& slots() const { return slots_; }

  virtual uint8_t* data() const = 0;
  virtual size_t bytes() const = 0;
  virtual size_t capacity() const = 0;  // whole pages: what may be registered as GPU memory
  // -1: of the host.
  virtual int gpu() const { return -1; }

  // Slot k of [first, first + count) carries iteration `iteration + (k - first)`. All three throw
  // std::invalid_argument where there are no such slots.
  void fill(size_t first, size_t count, uint64_t iteration, uint64_t seed, const PayloadSpan* spans,
            size_t n_spans);
  void poison(size_t first, size_t count, uint64_t iteration, uint64_t seed,
              const PayloadSpan* spans, size_t n_spans);
  SlotVerdict verify(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                     const PayloadSpan* spans, size_t n_spans);

  // The same of elements that a group reduces; see memory/elements.h, which also throws
  // std::invalid_argument.
  void fill(size_t first, size_t count, uint64_t iteration, uint64_t seed, const PayloadSpan* spans,
            size_t n_spans, const ElementGroup& group);
  void poison(size_t first, size_t count, uint64_t iteration, uint64_t seed,
              const PayloadSpan* spans, size_t n_spans, const ElementGroup& group);
  ElementVerdict verify(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                        const PayloadSpan* spans, size_t n_spans, const ElementGroup& group);

 protected:
  struct Batch {
    size_t first, count;
    uint64_t iteration, seed;
    const PayloadSpan* spans;
    size_t n_spans;
  };
  virtual void do_fill(const Batch& batch) = 0;
  virtual void do_poison(const Batch& batch) = 0;
  virtual SlotVerdict do_verify(const Batch& batch) = 0;
  virtual void do_fill(const Batch& batch, const ElementGroup& group) = 0;
  virtual void do_poison(const Batch& batch, const ElementGroup& group) = 0;
  virtual ElementVerdict do_verify(const Batch& batch, const ElementGroup& group) = 0;

  Slots slots_{};

 private:
  void check(size_t first, size_t count) const;

  size_t count_ = 0;
};

class HostSlots final : public SlotMemory {
 public:
  explicit HostSlots(size_t bytes) : buffer_(bytes) {}
  uint8_t* data() const override { return buffer_.data(); }
  size_t bytes() const override { return buffer_.bytes(); }
  size_t capacity() const override { return buffer_.capacity(); }

 protected:
  void do_fill(const Batch& batch) override;
  void do_poison(const Batch& batch) override;
  SlotVerdict do_verify(const Batch& batch) override;
  void do_fill(const Batch& batch, const ElementGroup& group) override;
  void do_poison(const Batch& batch, const ElementGroup& group) override;
  ElementVerdict do_verify(const Batch& batch, const ElementGroup& group) override;

 private:
  HostBuffer buffer_;
};

}  // namespace tcpx
