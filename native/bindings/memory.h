#pragma once

#include "bindings/bind.h"
#include "engine/batch_loop.h"
#include "memory/buffer.h"
#include "memory/payload.h"

namespace tcpx {

// A host buffer cut into slots, as a row wants it.
class SlotBuffer {
 public:
  explicit SlotBuffer(size_t bytes) : buffer_(bytes) {}

  void cut(size_t used, size_t guard, size_t stride, size_t count) {
    if (used + guard > stride || stride * count > buffer_.bytes()) {
      throw nb::value_error("slots do not fit the buffer");
    }
    slots_ = {buffer_.data(), stride, used, guard};
    count_ = count;
  }
  HostBuffer& buffer() { return buffer_; }
  const Slots& slots() const { return slots_; }
  void check(size_t first, size_t count) const {
    if (first + count > count_) throw nb::value_error("no such slots");
  }
  SlotBase base() const { return {slots_.base, slots_.stride}; }

 private:
  HostBuffer buffer_;
  Slots slots_{};
  size_t count_ = 0;
};

}  // namespace tcpx
