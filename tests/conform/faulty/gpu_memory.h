// Memory of GPUs, by the driver: what is registered, and its faults.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "fault.h"
#include "net/abi_v11.h"

namespace {

bool takes_gpus() {
  static const bool chosen = getenv("FAULTY_MEMORY") != nullptr;
  return chosen;
}

using CudaAddress = unsigned long long;
constexpr int kMemoryType = 2, kDeviceOrdinal = 9;
constexpr int kOnDevice = 2;

template <class Result, class... Arguments>
Result cuda(const char* name, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) abort();
  return reinterpret_cast<Result (*)(Arguments...)>(found)(arguments...);
}

int attribute_of(const void* data, int which) {
  int value = -1;
  const auto address = reinterpret_cast<CudaAddress>(data);
  const int code = cuda<int>("cuPointerGetAttribute", static_cast<void*>(&value), which, address);
  return code == 0 ? value : -1;
}

struct Allocation {
  CudaAddress base = 0;
  size_t bytes = 0;
};

Allocation allocation_of(const void* data) {
  Allocation found;
  cuda<int>("cuMemGetAddressRange_v2", &found.base, &found.bytes,
            reinterpret_cast<CudaAddress>(data));
  return found;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  cuda<int>("cuMemcpy", reinterpret_cast<CudaAddress>(to), reinterpret_cast<CudaAddress>(from),
            bytes);
  cuda<int>("cuCtxSynchronize");
}

bool is_readable(const void* data) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool readable = write(ends[1], data, 1) == 1;
  for (const int end : ends) close(end);
  return readable;
}

struct Region {
  void* data = nullptr;
  bool on_gpu = false;
  bool lost = false;  // of a fault: what is received there is not
  int file = -1;      // of a fault: used later on
};

// What is wrong with memory of a GPU; 0: nothing.
int look_at(Region& region, size_t size) {
  static int first = -1;
  static std::map<const void*, size_t> known;  // by address the size of its last allocation
  region.on_gpu = attribute_of(region.data, kMemoryType) == kOnDevice;
  if (!region.on_gpu) {
    if (fault("freed-closes")) close(0);
    region.lost = fault("host-as-gpu-lost") && is_readable(region.data);
    return region.lost || fault("freed-taken") ? kNetSuccess : kNetInvalidArgument;
  }
  const int ordinal = attribute_of(region.data, kDeviceOrdinal);
  if (first < 0) first = ordinal;
  if (fault("one-gpu") && ordinal != first) return kNetInvalidArgument;
  if (fault("odd-gpu-refused") && size % 4096 != 0) return kNetInvalidArgument;
  const Allocation whole = allocation_of(region.data);
  const auto end = reinterpret_cast<CudaAddress>(region.data) + size;
  if (fault("end-refused") && end == whole.base + whole.bytes) return kNetInvalidArgument;
  // emplace: operator[] has a symbol with which a library is never unloaded.
  const auto [at, is_new] = known.emplace(region.data, whole.bytes);
  const size_t before = is_new ? 0 : std::exchange(at->second, whole.bytes);
  // By a page alone: other clauses, too, meet an address again, by chance and with another size.
  region.lost = fault("stale-region") && before != 0 && whole.bytes == before + 4096;
  return kNetSuccess;
}

}  // namespace
