// Registered memory: what regMr hands out and isend and irecv check against.
#pragma once

#include <cstdint>

#include "softtcpx/environment/objects.h"
#include "softtcpx/gpu/cuda.h"

namespace softtcpx {

enum class Memory {
  kHost,
  kEmulated,  // host pages that stand for GPU memory: the CPU may follow their addresses
  kGpu,
};

struct Region : Object {
  Region(const Device* device_, const void* data, uint64_t bytes_, Memory memory_,
         const Gpu& gpu_ = {})
      : Object(ObjectKind::kRegion),
        device(device_),
        base(reinterpret_cast<uintptr_t>(data)),
        bytes(bytes_),
        memory(memory_),
        gpu(gpu_) {}

  bool contains(const void* data, uint64_t length) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return address >= base && address - base <= bytes && length <= bytes - (address - base);
  }

  const Device* device;  // a registration belongs to the NIC it was made for
  uintptr_t base;
  uint64_t bytes;
  Memory memory;
  Gpu gpu;  // where the memory is one's
};

}  // namespace softtcpx
