#include "softtcpx/gpu/page_copier.h"

#include <time.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "softtcpx/environment/log.h"

namespace softtcpx {
namespace {

constexpr unsigned kNonBlocking = 1;  // of cuStreamCreate
constexpr size_t kPageBytes = 4096;
constexpr std::chrono::seconds kLastCopies{2};

}  // namespace

PageCopier::PageCopier(const Gpu& gpu) : gpu_(gpu) {
  if (!memory_.open(gpu, kPageBytes))
    throw std::system_error(errno, std::generic_category(), "memory for copies into the GPU");
  told_ = reinterpret_cast<uint32_t*>(memory_.host());
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuStreamCreate", gpu_.driver->stream_create(&stream_, kNonBlocking));
}

PageCopier::~PageCopier() {
  const CurrentContext current(gpu_);
  if (current.code() != 0) return;  // the context is gone, and its streams with it
  const auto deadline = std::chrono::steady_clock::now() + kLastCopies;
  const auto is_copying = [&] { return gpu_.driver->stream_query(stream_) == kCudaNotReady; };
  while (is_copying() && std::chrono::steady_clock::now() < deadline) {
    const timespec pause{0, 20'000};
    ::nanosleep(&pause, nullptr);
  }
  if (is_copying()) {
    SOFTTCPX_WARN("copies into GPU %d do not end; their %llu bytes stay page-locked", gpu_.ordinal,
                  static_cast<unsigned long long>(memory_.bytes()));
    memory_.abandon();
    return;
  }
  gpu_.driver->stream_destroy(stream_);
}

void PageCopier::note(const char* call, int code) {
  if (code == 0 || code_ != 0) return;
  failed_call_ = call;
  code_ = code;
}

void PageCopier::copy(const Run* runs, uint32_t count) {
  const CudaDriver& driver = *gpu_.driver;
  if (count > 1 && driver.memcpy_batch_async != nullptr) {
    std::array<CudaAddress, kMostRuns> to, from;
    std::array<size_t, kMostRuns> bytes;
    for (uint32_t i = 0; i < count; ++i) {
      to[i] = runs[i].to;
      from[i] = reinterpret_cast<CudaAddress>(runs[i].from);
      bytes[i] = runs[i].bytes;
    }
    CudaCopyAttributes attributes;
    size_t first = 0;
    if (driver.memcpy_batch_async(to.data(), from.data(), bytes.data(), count, &attributes, &first,
                                  1, stream_) == 0)
      return;
  }
  for (uint32_t i = 0; i < count; ++i)
    note("cuMemcpyHtoDAsync",
         driver.memcpy_htod_async(runs[i].to, runs[i].from, runs[i].bytes, stream_));
}

uint32_t PageCopier::tell() {
  note("cuStreamWriteValue32",
       gpu_.driver->stream_write_value32(
           stream_, reinterpret_cast<CudaAddress>(memory_.as_seen_by_gpu(told_)), ++number_, 0));
  return number_;
}

void PageCopier::ask() {
  const int code = gpu_.driver->stream_query(stream_);
  if (code != kCudaNotReady) note("cuStreamQuery", code);
}

}  // namespace softtcpx
