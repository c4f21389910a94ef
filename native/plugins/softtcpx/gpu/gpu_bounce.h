// Of a trap: the device block and the bounce buffer once more, in a GPU's memory, where TCPX has
// them and the CPU cannot follow their addresses. Sockets are read into page-locked pages as ever,
// and each fragment is copied from there before it is told.
#pragma once

#include <cstddef>
#include <cstdint>

#include "net/abi_v7.h"
#include "plugins/softtcpx/gpu/cuda.h"

namespace softtcpx {

class GpuBounce {
 public:
  // Throws CudaError.
  GpuBounce(const Gpu& gpu, const uint8_t* pages, size_t bytes);
  ~GpuBounce();
  GpuBounce(const GpuBounce&) = delete;
  GpuBounce& operator=(const GpuBounce&) = delete;

  // The block as it is told, but for its bounce buffer, which is here. Throws CudaError.
  void describe(NetUnpackDevice block);
  NetUnpackDevice* block() const { return reinterpret_cast<NetUnpackDevice*>(pages_ + bytes_); }
  // Bytes of the pages at the same offset; false when the driver refuses.
  bool put(uint32_t offset, uint32_t bytes) const;

 private:
  const Gpu gpu_;
  const uint8_t* const host_;
  const size_t bytes_;
  CudaAddress memory_ = 0;
  CudaAddress pages_ = 0;  // in it, at a page
};

}  // namespace softtcpx
