// Whole pages of host memory; with a GPU page-locked, and mapped so that both sides can read and
// write them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softtcpx/gpu/cuda.h"

namespace softtcpx {

// A stretch of host memory that the driver has locked and mapped for a GPU.
class PageLock {
 public:
  PageLock() = default;
  ~PageLock() { release(); }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  // Throws CudaError when the driver does not lock or map it.
  void acquire(const Gpu& gpu, uint8_t* memory, size_t bytes);
  void release();
  // Never unlocked.
  void abandon() { gpu_ = Gpu{}; }

  explicit operator bool() const { return static_cast<bool>(gpu_); }
  // From the CPU's address of a byte to the GPU's: 0 under unified addressing, and with no GPU.
  ptrdiff_t view_offset() const { return view_offset_; }

 private:
  Gpu gpu_;
  uint8_t* memory_ = nullptr;
  ptrdiff_t view_offset_ = 0;
};

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
  void abandon() {
    lock_.abandon();
    memory_ = nullptr;
  }

  uint8_t* host() const { return memory_; }
  // The same byte as the GPU sees it; without a GPU, as the CPU does.
  template <class T>
  T* as_seen_by_gpu(T* here) const {
    return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(here) + lock_.view_offset());
  }
  bool pinned() const { return static_cast<bool>(lock_); }
  size_t bytes() const { return bytes_; }

 private:
  PageLock lock_;
  uint8_t* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace softtcpx
