// Registered memory: what regMr hands out and isend and irecv check against.
#pragma once

#include <cstdint>

#include "softtcpx/objects.h"

namespace softtcpx {

struct Region : Object {
  Region(const Device* device_, const void* data, uint64_t bytes_, bool on_device_)
      : Object(ObjectKind::kRegion),
        device(device_),
        base(reinterpret_cast<uintptr_t>(data)),
        bytes(bytes_),
        on_device(on_device_) {}

  bool contains(const void* data, uint64_t length) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return address >= base && address - base <= bytes && length <= bytes - (address - base);
  }

  const Device* device;  // a registration belongs to the NIC it was made for
  uintptr_t base;
  uint64_t bytes;
  bool on_device;  // GPU memory, or host pages that stand for it
};

}  // namespace softtcpx
