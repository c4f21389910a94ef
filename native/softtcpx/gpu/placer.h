// Puts bytes into the memory of a GPU, or where there is none into host pages that stand for it.
//
// The driver copies them on a stream of ours, out of page-locked memory: the caller's own streams,
// and kernels that wait there for these very bytes, are not waited for.
#pragma once

#include <cstdint>

#include "softtcpx/gpu/cuda.h"
#include "softtcpx/gpu/pinned.h"

namespace softtcpx {

class Placer {
 public:
  static constexpr uint32_t kBytes = 256 << 10;

  // Without a GPU for host pages only. Throws CudaError, std::system_error.
  explicit Placer(const Gpu& gpu);
  ~Placer();
  Placer(const Placer&) = delete;
  Placer& operator=(const Placer&) = delete;

  // Where bytes may lie before they are put in place: `kBytes` of it.
  uint8_t* buffer() const { return memory_.host(); }
  // Returns when they are there; false when the driver refuses. `from` may be `buffer()`.
  bool put(void* to, const uint8_t* from, uint64_t bytes);

 private:
  const Gpu gpu_;
  PinnedMemory memory_;
  CudaStream stream_ = nullptr;
};

}  // namespace softtcpx
