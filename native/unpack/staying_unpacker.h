// Small receives without a launch each: a kernel that stays for a while puts them in place. It
// takes a part of one multiprocessor, and whoever waits for all that the GPU does waits for it, a
// few milliseconds at most.
#pragma once

#include "cuda/gpu.h"
#include "staying/letters.h"
#include "unpack/kernel_arguments.h"

namespace tcpx {

class StayingUnpacker {
 public:
  static constexpr uint64_t kMostBytes = 64 << 10;  // of a receive

  // Compiles where need be. Throws CudaUnavailable, CudaError.
  explicit StayingUnpacker(Gpu& gpu);

  // What it can be asked for, and so many of those.
  static bool takes(const UnpackItem& item);
  bool has_room(uint64_t items) const { return letters_.has_room(items); }
  // ended() comes to `number`, which is above all before.
  void put(const UnpackItem& item, uint64_t number);
  // Launches a kernel where something is to be done and none is there; the driver's code.
  int tend();
  // The last number: whoever sees it sees the bytes.
  uint64_t ended() const {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(told_.data()), __ATOMIC_ACQUIRE);
  }
  void* stream() const { return stream_.handle(); }

 private:
  void* const function_;
  GpuStream stream_;
  PinnedMemory told_, memory_;
  Letters letters_;
};

}  // namespace tcpx
