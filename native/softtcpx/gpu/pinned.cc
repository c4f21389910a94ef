#include "softtcpx/gpu/pinned.h"

#include <sys/mman.h>

#include "softtcpx/environment/log.h"

namespace softtcpx {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr unsigned kPortable = 1, kDeviceMap = 2;  // of cuMemHostRegister

}  // namespace

void PageLock::acquire(const Gpu& gpu, uint8_t* memory, size_t bytes) {
  // Advice only: fewer faults when it is locked, and fewer misses when pages are taken in no order.
  ::madvise(memory, bytes, MADV_HUGEPAGE);
  const CurrentContext current(gpu);
  check_cuda(*gpu.driver, "cuCtxPushCurrent", current.code());
  check_cuda(*gpu.driver, "cuMemHostRegister",
             gpu.driver->mem_host_register(memory, bytes, kPortable | kDeviceMap));
  gpu_ = gpu;  // from here on it is unregistered too
  memory_ = memory;
  CudaAddress seen = 0;
  check_cuda(*gpu.driver, "cuMemHostGetDevicePointer",
             gpu.driver->mem_host_get_device_pointer(&seen, memory, 0));
  view_offset_ = static_cast<ptrdiff_t>(seen - reinterpret_cast<CudaAddress>(memory));
}

void PageLock::release() {
  if (!gpu_) return;
  // A context that is gone took its registrations along.
  const CurrentContext current(gpu_);
  const int code = current.code() == 0 ? gpu_.driver->mem_host_unregister(memory_) : 0;
  if (code != 0) SOFTTCPX_WARN("cuMemHostUnregister: %s", cuda_error_name(*gpu_.driver, code));
  gpu_ = Gpu{};
}

bool PinnedMemory::open(const Gpu& gpu, size_t bytes) {
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = static_cast<uint8_t*>(memory);
  bytes_ = bytes;
  if (gpu) lock_.acquire(gpu, memory_, bytes);
  return true;
}

void PinnedMemory::close() {
  if (memory_ == nullptr) return;
  lock_.release();
  ::munmap(memory_, bytes_);
  memory_ = nullptr;
}

}  // namespace softtcpx
