// Small messages out of GPU memory by a kernel of one block, which also tells that they have
// landed: one call of the driver in place of two, and no way through the copy engine.
#pragma once

#include <cstdint>

#include "softtcpx/cuda.h"

namespace softtcpx {

// What the kernel is told, by value.
struct SmallCopyArguments {
  unsigned long long from;  // both at multiples of kSmallCopyUnit
  unsigned long long to;    // as the GPU sees it
  unsigned long long told;  // of u32, as the GPU sees it
  unsigned units;           // of kSmallCopyUnit bytes
  unsigned ticket;          // written there when all is in place
};
constexpr uint64_t kSmallCopyUnit = 16;

class SmallCopy {
 public:
  // All of it needs the context to be current. The driver's code: where that is not 0 there is no
  // kernel, and nothing to unload.
  int load(const Gpu& gpu);
  void unload();
  // The driver's code. Reads and writes whole units: up to 15 bytes behind `length`.
  int begin(const SmallCopyArguments& arguments, CudaStream stream) const;

 private:
  const CudaDriver* driver_ = nullptr;
  CudaModule module_ = nullptr;
  CudaFunction kernel_ = nullptr;
};

}  // namespace softtcpx
