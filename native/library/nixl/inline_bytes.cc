#include "library/nixl/inline_bytes.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "engine/clock.h"

namespace tcpx::nixl {
namespace {

bool any_on_gpu(const std::vector<RegionRange>& places) {
  return std::any_of(places.begin(), places.end(),
                     [](const RegionRange& place) { return place.region().on_gpu; });
}

CudaAddress address_of(const uint8_t* data) { return reinterpret_cast<CudaAddress>(data); }

}  // namespace

InlineBytes::OnGpu::OnGpu(Gpu& one, double patience)
    : gpu(one), patience_s(patience), pinned(one, kMostInline), stream(one) {}

void InlineBytes::OnGpu::copy(CudaAddress to, CudaAddress from, uint64_t bytes) const {
  check_cuda(cuda().copy_async(to, from, bytes, stream.handle()), "cuMemcpyAsync");
}

// The driver's own wait has no deadline, and may sleep.
void InlineBytes::OnGpu::wait() const {
  const int64_t deadline = now_ns() + static_cast<int64_t>(patience_s * 1e9);
  for (;;) {
    const int code = cuda().stream_query(stream.handle());
    if (code == 0) return;
    if (code != kCudaNotReady) check_cuda(code, "cuStreamQuery");
    if (now_ns() > deadline) throw std::runtime_error("the GPU copies nothing");
  }
}

void InlineBytes::open(int gpu, double patience_s) {
  if (!on_gpu_) on_gpu_ = std::make_unique<OnGpu>(use_gpu(gpu), patience_s);
}

InlineBytes::~InlineBytes() {
  if (!on_gpu_) return;
  try {
    const GpuCurrent current(&on_gpu_->gpu);
    on_gpu_->wait();
  } catch (const std::exception&) {
    static std::mutex mutex;
    static auto& left = *new std::vector<std::unique_ptr<OnGpu>>;  // nobody ends it
    const std::lock_guard<std::mutex> lock(mutex);
    left.push_back(std::move(on_gpu_));
  }
}

// With nothing under way in the page-locked memory: a wait may have been given up.
InlineBytes::OnGpu& InlineBytes::on_gpu(const std::vector<RegionRange>& places) {
  uint64_t bytes = 0;
  for (const RegionRange& place : places) bytes += place.bytes();
  if (!on_gpu_ || bytes > kMostInline) throw std::runtime_error("too much for one frame");
  on_gpu_->wait();
  return *on_gpu_;
}

void InlineBytes::gather(const std::vector<RegionRange>& places, uint8_t* to) {
  if (!any_on_gpu(places)) return nixl::gather(places, 0, places.size(), to);
  const GpuCurrent current(&on_gpu_->gpu);
  const OnGpu& way = on_gpu(places);
  uint64_t at = 0;
  for (const RegionRange& place : places) {
    way.copy(way.pinned.address() + at, address_of(place.data()), place.bytes());
    at += place.bytes();
  }
  way.wait();
  memcpy(to, way.pinned.data(), at);
}

void InlineBytes::scatter(const uint8_t* from, const std::vector<RegionRange>& places) {
  if (!any_on_gpu(places)) return nixl::scatter(from, places, 0, places.size());
  const GpuCurrent current(&on_gpu_->gpu);
  const OnGpu& way = on_gpu(places);
  uint64_t at = 0;
  for (const RegionRange& place : places) {
    memcpy(way.pinned.data() + at, from + at, place.bytes());
    way.copy(address_of(place.data()), way.pinned.address() + at, place.bytes());
    at += place.bytes();
  }
  way.wait();
}

}  // namespace tcpx::nixl
