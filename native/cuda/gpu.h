// The GPUs of this process: what they are, and what is made once for each that is used.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace tcpx {

struct GpuFacts {
  int ordinal;  // among the visible ones
  std::string name;
  std::string pci;   // "0000:0f:00.0"
  std::string uuid;  // "GPU-..."
  size_t total_bytes;
  int major, minor;  // compute capability
  int multiprocessors;
  bool dma_buf;  // its memory can be handed over as one
};

// Of all visible GPUs. Throws CudaUnavailable if there is none.
std::vector<GpuFacts> gpus();

struct GpuKernels {
  void* unpack;
  void* unpack_pages;
  void* payload_write;
  void* payload_verify;
};

// A GPU in use, for the life of the process: its primary context, which everybody in it shares, and
// the kernels.
class Gpu {
 public:
  explicit Gpu(int ordinal);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Makes it current on the calling thread.
  void select() const;
  // The same for destructors, which may run when the driver is already gone.
  void select_if_there() const noexcept { cuda().set_current(context_); }

  // Starts a kernel with one argument, a plain block of data that is copied before this returns.
  void launch(void* function, unsigned blocks, unsigned threads, const void* argument,
              void* stream) const;

  // Compiled at the first call.
  const GpuKernels& kernels();

  // A kernel that only some programs need; `source` is compiled at its first use, with this GPU
  // current.
  void* function(const std::string& source, const char* name);

  const GpuFacts facts;

 private:
  void* context_ = nullptr;
  std::once_flag compiled_;
  GpuKernels kernels_{};
  std::mutex modules_mutex_;
  std::map<std::string, void*> modules_;  // by source
};

// The GPU with this number; current nowhere that it was not. Throws CudaUnavailable, CudaError.
Gpu& use_gpu(int ordinal);

// A GPU that is current for as long as a call of ours takes, on a thread that is somebody else's.
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

// The GPU that has this memory; -1: the host, page-locked or not.
int gpu_of(const void* pointer);

// GPU memory as a descriptor, which is closed with it: of the whole pages that it lies in.
class DmaBuf {
 public:
  // Throws CudaError, and CudaUnavailable where the driver makes none.
  DmaBuf(const void* data, size_t bytes);
  ~DmaBuf();
  DmaBuf(const DmaBuf&) = delete;
  DmaBuf& operator=(const DmaBuf&) = delete;

  int fd() const { return fd_; }
  uint64_t offset() const { return offset_; }  // of `data` in it

 private:
  int fd_ = -1;
  uint64_t offset_;
};

// A copy between any two of the host and GPUs that is over when this returns, for every stream. The
// driver's own returns while bytes that were not page-locked, or that stay on a GPU, are still on
// their way. A non-blocking stream does not wait for those. Behind all that the default stream of
// the GPU that is current was given. Throws CudaError, with `what` behind it.
void copy_now(CudaAddress to, CudaAddress from, size_t bytes, const std::string& what = "");

// Memory of a GPU, or page-locked memory of the host that all GPUs see at the same address. To make
// and to drop it leaves current on the calling thread what was; so it is with streams.
class GpuMemory {
 public:
  GpuMemory(Gpu& gpu, size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  CudaAddress address() const { return address_; }
  size_t bytes() const { return bytes_; }

 private:
  Gpu& gpu_;
  CudaAddress address_ = 0;
  size_t bytes_;
};

class PinnedMemory {
 public:
  PinnedMemory(Gpu& gpu, size_t bytes);  // zeroed
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  uint8_t* data() const { return data_; }
  CudaAddress address() const { return reinterpret_cast<CudaAddress>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  Gpu& gpu_;
  uint8_t* data_ = nullptr;
  size_t bytes_;
};

class GpuStream {
 public:
  explicit GpuStream(Gpu& gpu);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  void* handle() const { return handle_; }
  void wait() const { check_cuda(cuda().stream_wait(handle_), "cuStreamSynchronize"); }

 private:
  Gpu& gpu_;
  void* handle_ = nullptr;
};

}  // namespace tcpx
