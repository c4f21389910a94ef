// Whole pages of host memory; where there is a GPU page-locked, and mapped so that it can be read
// and written from both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugins/softtcpx/gpu/cuda.h"

namespace softtcpx {

class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory() { close(); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Zeros, up to the end of a page. Without a GPU it costs addresses until a page is touched, with
  // one all of it at once. False with errno set; throws CudaError when the driver does not lock or
  // map it.
  bool open(const Gpu& gpu, size_t bytes);
  void close();
  // Never unmapped: for memory that a copy engine may still write to.
  void abandon() { memory_ = nullptr; }

  uint8_t* host() const { return memory_; }
  // The same byte as the GPU sees it; without a GPU, as the CPU does.
  template <class T>
  T* as_seen_by_gpu(T* here) const {
    return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(here) + view_offset_);
  }
  bool pinned() const { return static_cast<bool>(gpu_); }
  size_t bytes() const { return bytes_; }

 private:
  Gpu gpu_;
  uint8_t* memory_ = nullptr;
  size_t bytes_ = 0;
  ptrdiff_t view_offset_ = 0;  // 0 under unified addressing
};

}  // namespace softtcpx
