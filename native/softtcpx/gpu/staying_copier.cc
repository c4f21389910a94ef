#include "softtcpx/gpu/staying_copier.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>

#include "softtcpx/environment/log.h"
#include "staying/staying_ptx.h"

namespace softtcpx {
namespace {

constexpr unsigned kNonBlocking = 1;  // of cuStreamCreate
constexpr uint64_t kPart = 4096;      // bytes of a warp
constexpr uint64_t kMostBytes = 64 << 10;
constexpr std::chrono::seconds kLastKernel{2};

}  // namespace

StayingCopier::StayingCopier(const Gpu& gpu, uint64_t told_at, int64_t linger_us) : gpu_(gpu) {
  const CudaDriver& driver = *gpu_.driver;
  const CurrentContext current(gpu_);
  void* module = nullptr;  // stays until the context is gone
  check_cuda(driver, "cuModuleLoadData", driver.module_load_data(&module, tcpx::kStayingPtx));
  check_cuda(driver, "cuModuleGetFunction",
             driver.module_get_function(&function_, module, "stay_and_copy"));
  if (!memory_.open(gpu_, tcpx::Letters::kBytes)) throw std::bad_alloc();
  if (memory_.as_seen_by_gpu(memory_.host()) != memory_.host())
    throw std::runtime_error("the GPU sees host memory at addresses of its own");
  letters_.emplace(memory_.host(), reinterpret_cast<uint64_t>(memory_.host()), told_at,
                   static_cast<uint64_t>(linger_us) * 1000);
  check_cuda(driver, "cuStreamCreate", driver.stream_create(&stream_, kNonBlocking));
}

StayingCopier::~StayingCopier() {
  const CurrentContext current(gpu_);
  if (current.code() != 0) return;  // the context is gone, and the kernel with it
  const auto deadline = std::chrono::steady_clock::now() + kLastKernel;
  const auto is_there = [&] { return gpu_.driver->stream_query(stream_) == kCudaNotReady; };
  while (is_there() && std::chrono::steady_clock::now() < deadline) {
    const timespec pause{0, 20'000};
    ::nanosleep(&pause, nullptr);
  }
  if (is_there()) {
    SOFTTCPX_WARN("a kernel on GPU %d does not end; its %llu bytes stay page-locked", gpu_.ordinal,
                  static_cast<unsigned long long>(memory_.bytes()));
    memory_.abandon();
    return;
  }
  gpu_.driver->stream_destroy(stream_);
}

bool StayingCopier::takes(CudaAddress from, const void* to, uint64_t bytes) {
  return bytes <= kMostBytes &&
         tcpx::Letters::can_say(from + bytes, reinterpret_cast<uint64_t>(to) + bytes, 0);
}

bool StayingCopier::has_room(uint64_t copies, uint64_t bytes) const {
  return bytes <= kMostBytes && copies + bytes / kPart <= tcpx::kMostCopies &&
         letters_->has_room(1);
}

void StayingCopier::add(CudaAddress from, const void* to, uint64_t bytes) {
  const auto target = reinterpret_cast<uint64_t>(to);  // it sees all page-locked memory there
  for (uint64_t at = 0; at < bytes; at += kPart) {
    letters_->add(from + at, target + at, static_cast<uint32_t>(std::min(kPart, bytes - at)));
  }
}

int StayingCopier::send(uint32_t number) {
  letters_->send(number);
  return tend();
}

int StayingCopier::tend() {
  if (!letters_->needs_kernel()) return 0;
  tcpx::StayingArguments kernel = letters_->next_kernel();
  void* arguments[] = {&kernel};
  const int code = gpu_.driver->launch_kernel(function_, 1, 1, 1, tcpx::kStayingThreads, 1, 1, 0,
                                              stream_, arguments, nullptr);
  if (code != 0) letters_->no_kernel();
  return code;
}

int StayingCopier::query() {
  const int code = gpu_.driver->stream_query(stream_);
  return code == 0 && letters_->needs_kernel() ? kCudaNotReady : code;
}

}  // namespace softtcpx
