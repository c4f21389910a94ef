// The bytes of a request that travel in the control stream: between a frame and their places, which
// may be in memory of a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/gpu.h"
#include "library/nixl/pump.h"

namespace tcpx::nixl {

// Guarded by the engine's lock.
class InlineBytes {
 public:
  // Before the first place of this GPU. Takes a stream and page-locked memory. Throws CudaError.
  void open(int gpu);
  // In the order of the places. Memory of a GPU has been read, or written for every stream, when
  // they return. Throw std::runtime_error, also when the GPU copies nothing for `patience_s`.
  void gather(const std::vector<RegionRange>& places, uint8_t* to, double patience_s);
  void scatter(const uint8_t* from, const std::vector<RegionRange>& places, double patience_s);

 private:
  struct OnGpu {
    explicit OnGpu(Gpu& one);
    void copy(CudaAddress to, CudaAddress from, uint64_t bytes) const;
    void wait(double patience_s) const;
    Gpu& gpu;
    PinnedMemory pinned;  // the driver's own way to memory that is not takes longer
    GpuStream stream;     // that waits for nobody else's work
  };
  OnGpu& on_gpu(const std::vector<RegionRange>& places, double patience_s);

  std::unique_ptr<OnGpu> on_gpu_;
};

}  // namespace tcpx::nixl
