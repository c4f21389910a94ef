#include "plugins/softtcpx/gpu/gpu_bounce.h"

namespace softtcpx {
namespace {

constexpr CudaAddress kPageBytes = 4096;

}  // namespace

GpuBounce::GpuBounce(const Gpu& gpu, const uint8_t* pages, size_t bytes)
    : gpu_(gpu), host_(pages), bytes_(bytes) {
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuCtxPushCurrent", current.code());
  check_cuda(*gpu_.driver, "cuMemAlloc",
             gpu_.driver->mem_alloc(&memory_, bytes_ + kPageBytes + sizeof(NetUnpackDevice)));
  pages_ = (memory_ + kPageBytes - 1) / kPageBytes * kPageBytes;
}

GpuBounce::~GpuBounce() {
  const CurrentContext current(gpu_);
  if (current.code() == 0) gpu_.driver->mem_free(memory_);
}

void GpuBounce::describe(NetUnpackDevice block) {
  const CurrentContext current(gpu_);
  block.bounce_buf = reinterpret_cast<decltype(block.bounce_buf)>(pages_);
  check_cuda(*gpu_.driver, "cuMemcpyHtoD",
             gpu_.driver->memcpy_htod(pages_ + bytes_, &block, sizeof block));
}

bool GpuBounce::put(uint32_t offset, uint32_t bytes) const {
  const CurrentContext current(gpu_);
  return current.code() == 0 &&
         gpu_.driver->memcpy_htod(pages_ + offset, host_ + offset, bytes) == 0;
}

}  // namespace softtcpx
