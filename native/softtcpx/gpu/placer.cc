#include "softtcpx/gpu/placer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace softtcpx {
namespace {

constexpr unsigned kNonBlocking = 1;
constexpr int kNotReady = 600;

}  // namespace

Placer::Placer(const Gpu& gpu) : gpu_(gpu) {
  const CurrentContext current(gpu_);
  if (!memory_.open(gpu_, kBytes))
    throw std::system_error(errno, std::generic_category(), "memory to put bytes in place from");
  if (gpu_)
    check_cuda(*gpu_.driver, "cuStreamCreate", gpu_.driver->stream_create(&stream_, kNonBlocking));
}

Placer::~Placer() {
  if (!gpu_) return;
  const CurrentContext current(gpu_);
  gpu_.driver->stream_destroy(stream_);
  memory_.close();
}

bool Placer::put(void* to, const uint8_t* from, uint64_t bytes) {
  if (!gpu_) {
    std::memcpy(to, from, bytes);
    return true;
  }
  const CurrentContext current(gpu_);
  for (uint64_t at = 0; at < bytes; at += kBytes) {
    const uint64_t length = std::min<uint64_t>(bytes - at, kBytes);
    const bool here = from + at >= buffer() && from + at + length <= buffer() + kBytes;
    if (!here) std::memcpy(buffer(), from + at, length);
    const auto target = reinterpret_cast<CudaAddress>(to) + at;
    const uint8_t* const source = here ? from + at : buffer();
    if (gpu_.driver->memcpy_htod_async(target, source, length, stream_) != 0) return false;
    int code;
    do code = gpu_.driver->stream_query(stream_);
    while (code == kNotReady);
    if (code != 0) return false;
  }
  return true;
}

}  // namespace softtcpx
