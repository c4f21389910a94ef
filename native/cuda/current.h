// A GPU that is current for as long as a call of ours takes, on a thread that is somebody else's.
#pragma once

#include <new>

#include "cuda/gpu.h"

namespace tcpx {

class GpuCurrent {
 public:
  // NULL: the thread stays as it is. Throws CudaError.
  explicit GpuCurrent(const Gpu* gpu) : restores_(gpu != nullptr) {
    if (gpu == nullptr) return;
    check_cuda(cuda().get_current(&before_), "cuCtxGetCurrent");
    gpu->select();
  }
  // For destructors, which may run when the driver is already gone.
  GpuCurrent(const Gpu& gpu, std::nothrow_t) noexcept
      : restores_(cuda().get_current(&before_) == 0) {
    gpu.select_if_there();
  }
  ~GpuCurrent() {
    if (restores_) cuda().set_current(before_);
  }
  GpuCurrent(const GpuCurrent&) = delete;
  GpuCurrent& operator=(const GpuCurrent&) = delete;

 private:
  void* before_ = nullptr;
  const bool restores_;
};

}  // namespace tcpx
