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
  InlineBytes() = default;
  // What a GPU that stands still may have under way stays: the driver would wait for it.
  ~InlineBytes();
  InlineBytes(const InlineBytes&) = delete;
  InlineBytes& operator=(const InlineBytes&) = delete;
  // Before the first place of this GPU. Takes a stream and page-locked memory. Throws CudaError.
  void open(int gpu, double patience_s);
  // In the order of the places. Memory of a GPU has been read, or written for every stream, when
  // they return. Throw std::runtime_error, also when the GPU copies nothing for its patience.
  void gather(const std::vector<RegionRange>& places, uint8_t* to);
  void scatter(const uint8_t* from, const std::vector<RegionRange>& places);

 private:
  struct OnGpu {
    OnGpu(Gpu& one, double patience_s);
    void copy(CudaAddress to, CudaAddress from, uint64_t bytes) const;
    void wait() const;
    Gpu& gpu;
    double patience_s;
    PinnedMemory pinned;  // the driver's own way to memory that is not takes longer
    GpuStream stream;     // that waits for nobody else's work
  };
  OnGpu& on_gpu(const std::vector<RegionRange>& places);

  std::unique_ptr<OnGpu> on_gpu_;
};

}  // namespace tcpx::nixl
