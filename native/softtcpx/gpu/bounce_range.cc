#include "softtcpx/gpu/bounce_range.h"

#include <sys/mman.h>

#include <cerrno>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>

namespace softtcpx {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kMiB = size_t{1} << 20;
// What 32 bits of offset reach; where a process may have fewer addresses, half of it, and so on.
constexpr size_t kRangeBytes = size_t{4} << 30;
constexpr size_t kLeastRangeBytes = size_t{64} << 20;
// Of a trap, since all of it is taken from the GPU's memory.
constexpr size_t kMirroredRangeBytes = size_t{1} << 30;
constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

constexpr size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string owner_of(const Gpu& gpu) {
  return gpu ? "of GPU " + std::to_string(gpu.ordinal) : "of this process";
}

[[noreturn]] void out_of(int error_number, const std::string& what) {
  throw std::system_error(error_number, std::generic_category(), what);
}

}  // namespace

std::shared_ptr<BounceRange> BounceRange::of(const Gpu& gpu, const Settings& settings) {
  static std::mutex* const mutex = new std::mutex;  // threads may outlive static objects
  static auto* const ranges = new std::map<int, std::weak_ptr<BounceRange>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::weak_ptr<BounceRange>& known = (*ranges)[gpu ? gpu.ordinal : -1];
  std::shared_ptr<BounceRange> range = known.lock();
  if (range == nullptr) {
    range.reset(new BounceRange(gpu, settings));
    if (const int64_t pages = settings.traps.shared_pages; pages > 0)
      range->shared_ = std::make_unique<SharedPages>(*range, gpu, static_cast<uint32_t>(pages));
    known = range;
  }
  return range;
}

BounceRange::BounceRange(const Gpu& gpu, const Settings& settings) : gpu_(gpu) {
  const bool trapped = settings.traps.device_memory != 0;
  const bool mirrored = gpu && (trapped || settings.gpu_pages_mib != 0);
  bytes_ = !mirrored ? kRangeBytes
           : trapped ? kMirroredRangeBytes
                     : static_cast<size_t>(settings.gpu_pages_mib) * kMiB;
  for (;; bytes_ /= 2) {
    reserved_bytes_ = bytes_ + kHugePageBytes;
    reserved_ = ::mmap(nullptr, reserved_bytes_, PROT_NONE, kFlags, -1, 0);
    if (reserved_ != MAP_FAILED) break;
    if (bytes_ <= kLeastRangeBytes) out_of(errno, "addresses for the bounce buffer");
  }
  base_ = reinterpret_cast<uint8_t*>(
      rounded_up(reinterpret_cast<uintptr_t>(reserved_), kHugePageBytes));
  if (!mirrored) return;
  try {
    open_mirror();
  } catch (...) {
    ::munmap(reserved_, reserved_bytes_);
    throw;
  }
}

BounceRange::~BounceRange() {
  shared_.reset();
  if (mirror_memory_ != 0) {
    const CurrentContext current(gpu_);
    if (current.code() == 0) gpu_.driver->mem_free(mirror_memory_);
  }
  ::munmap(reserved_, reserved_bytes_);
}

void BounceRange::open_mirror() {
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuCtxPushCurrent", current.code());
  check_cuda(*gpu_.driver, "cuMemAlloc",
             gpu_.driver->mem_alloc(&mirror_memory_, bytes_ + kPageBytes));
  mirror_ = rounded_up(mirror_memory_, kPageBytes);
}

void* BounceRange::named() const {
  return mirrored() ? reinterpret_cast<void*>(mirror_) : base_ + view_offset_;
}

bool BounceRange::copy_to_gpu(uint32_t offset, uint32_t bytes) const {
  const CurrentContext current(gpu_);
  return current.code() == 0 &&
         gpu_.driver->memcpy_htod(mirror_ + offset, base_ + offset, bytes) == 0;
}

uint32_t BounceRange::lease(size_t bytes) {
  // Huge pages are worth their alignment only where all of the memory is taken at once.
  const size_t unit = gpu_ ? kHugePageBytes : kPageBytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t begin = 0;  // first fit
  for (const auto& [other_begin, other_end] : leased_) {
    if (begin + bytes <= other_begin) break;
    begin = rounded_up(other_end, unit);
  }
  if (begin + bytes > bytes_)
    out_of(ENOMEM, "the bounce buffer " + owner_of(gpu_) + ", " + std::to_string(bytes_ / kMiB) +
                       " MiB for " + std::to_string(leased_.size()) +
                       " receiving connections, has no " + std::to_string(bytes / kMiB) +
                       " MiB left for one more; NCCL_DYNAMIC_CHUNK_SIZE or SOFTTCPX_BOUNCE_PAGES "
                       "say how much each takes");
  if (::mprotect(base_ + begin, bytes, PROT_READ | PROT_WRITE) != 0)
    out_of(errno, "memory for bounce pages");
  leased_[begin] = begin + bytes;
  return static_cast<uint32_t>(begin);
}

void BounceRange::give_back(uint32_t offset, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A fresh mapping in its place: what was written is gone, and who still reads it crashes. Where
  // the kernel has no more mappings the stretch stays out of use.
  void* const fresh = ::mmap(base_ + offset, bytes, PROT_NONE, kFlags | MAP_FIXED, -1, 0);
  if (fresh != MAP_FAILED) leased_.erase(offset);
}

void BounceRange::note_view(ptrdiff_t view_offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (view_known_ && view_offset != view_offset_)
    throw std::runtime_error(
        "the driver maps bounce pages at several distances from their host "
        "addresses: one bounce buffer cannot name them all");
  if (!view_known_) view_offset_ = view_offset;  // read by those that came before
  view_known_ = true;
}

BounceLease::~BounceLease() {
  lock_.release();
  if (range_ != nullptr) range_->give_back(offset_, bytes_);
}

void BounceLease::take(BounceRange& range, const Gpu& gpu, size_t bytes) {
  offset_ = range.lease(bytes);
  bytes_ = bytes;
  range_ = &range;
  if (!gpu) return;
  lock_.acquire(gpu, range.host() + offset_, bytes);
  range.note_view(lock_.view_offset());
}

SharedPages::SharedPages(BounceRange& range, const Gpu& gpu, uint32_t pages) : free_(pages) {
  lease_.take(range, gpu, size_t{pages} * kPageBytes);
  std::iota(free_.rbegin(), free_.rend(), uint16_t{0});
}

bool SharedPages::take(uint16_t* page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) return false;
  *page = free_.back();
  free_.pop_back();
  return true;
}

void SharedPages::give_back(uint16_t page) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(page);
}

GpuBlock::GpuBlock(const Gpu& gpu, const NetUnpackDevice& block) : gpu_(gpu) {
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuCtxPushCurrent", current.code());
  check_cuda(*gpu_.driver, "cuMemAlloc", gpu_.driver->mem_alloc(&memory_, sizeof block));
  const int code = gpu_.driver->memcpy_htod(memory_, &block, sizeof block);
  if (code != 0) gpu_.driver->mem_free(memory_);
  check_cuda(*gpu_.driver, "cuMemcpyHtoD", code);
}

GpuBlock::~GpuBlock() {
  const CurrentContext current(gpu_);
  if (current.code() == 0) gpu_.driver->mem_free(memory_);
}

}  // namespace softtcpx
