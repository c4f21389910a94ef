// A GPU that is current for as long as a call of ours takes, on a thread that is somebody else's.
#pragma once

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
  ~GpuCurrent() {
    if (restores_) cuda().set_current(before_);
  }
  GpuCurrent(const GpuCurrent&) = delete;
  GpuCurrent& operator=(const GpuCurrent&) = delete;

 private:
  const bool restores_;
  void* before_ = nullptr;
};

}  // namespace tcpx
