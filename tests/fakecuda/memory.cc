// Device memory, page-locked memory, and which kind an address is.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fakecuda {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSmall = size_t{1} << 20;  // smaller ones share large pages in the real driver
constexpr size_t kSmallOffset = 512;        // so they begin at no page
constexpr size_t kLargeAlignment = size_t{1} << 16;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* must_map(void* memory) {
  if (memory == MAP_FAILED) abort();
  return memory;
}

}  // namespace

Arena::Arena(CUdevice device_) : device(device_) {
  file_ = memfd_create("fakecuda", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kBytes) != 0) abort();
  const int flags = MAP_SHARED | MAP_NORESERVE;
  forbidden_ =
      reinterpret_cast<CUdeviceptr>(must_map(mmap(nullptr, kBytes, PROT_NONE, flags, file_, 0)));
  open_ = static_cast<uint8_t*>(must_map(mmap(nullptr, kBytes, PROT_NONE, flags, file_, 0)));
}

CUdeviceptr Arena::allocate(size_t bytes) {
  const bool small = bytes < kSmall;
  size_t begin = 0;  // first fit, a page between two
  size_t span = 0;
  for (auto next = allocations_.begin();; ++next) {
    begin = rounded_up(begin, small ? kPage : kLargeAlignment);
    span = rounded_up((small ? kSmallOffset : 0) + bytes, kPage);
    const size_t end = next == allocations_.end() ? kBytes : next->second.span_begin;
    if (begin + span + kPage <= end) break;
    if (next == allocations_.end()) return 0;
    begin = next->second.span_begin + next->second.span_bytes + kPage;
  }
  if (mprotect(open_ + begin, span, PROT_READ | PROT_WRITE) != 0) return 0;
  const size_t offset = begin + (small ? kSmallOffset : 0);
  allocations_[offset] = {bytes, begin, span};
  allocated_ += bytes;
  if (small) memset(open_ + begin, 0xA5, span);  // nobody cleared it; of more it would take long
  ++driver().version;
  return forbidden_ + offset;
}

bool Arena::free(CUdeviceptr pointer) {
  const auto found = allocations_.find(pointer - forbidden_);
  if (found == allocations_.end()) return false;
  const Allocation& gone = found->second;
  mprotect(open_ + gone.span_begin, gone.span_bytes, PROT_NONE);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gone.span_begin, gone.span_bytes);
  allocated_ -= gone.bytes;
  ++driver().version;
  allocations_.erase(found);
  return true;
}

bool Arena::range(CUdeviceptr pointer, CUdeviceptr* base, size_t* bytes) const {
  auto after = allocations_.upper_bound(pointer - forbidden_);
  if (after == allocations_.begin()) return false;
  --after;
  if (pointer - forbidden_ - after->first >= after->second.bytes) return false;
  *base = forbidden_ + after->first;
  *bytes = after->second.bytes;
  return true;
}

Arena* arena_of(CUdeviceptr pointer) {
  for (auto& [device, arena] : driver().arenas) {
    if (arena->holds(pointer)) return arena.get();
  }
  return nullptr;
}

bool is_pinned(CUdeviceptr pointer, size_t bytes) {
  auto after = driver().pinned.upper_bound(pointer);
  if (after == driver().pinned.begin()) return false;
  --after;
  return pointer - after->first + bytes <= after->second.bytes;
}

uint8_t* reach(CUdeviceptr pointer, size_t bytes, bool host_too) {
  const std::lock_guard<std::recursive_mutex> lock(driver().mutex);
  if (Arena* arena = arena_of(pointer)) {
    CUdeviceptr base = 0;
    size_t all = 0;
    if (!arena->range(pointer, &base, &all) || pointer - base + bytes > all) return nullptr;
    return arena->open(pointer);
  }
  return host_too ? reinterpret_cast<uint8_t*>(pointer) : nullptr;
}

namespace {

// Of the last few looked up on a thread: a kernel goes through the same ones again and again.
struct Stretch {
  CUdevice device = -1;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  uint8_t* memory = nullptr;
  uint64_t version = 0;
};
thread_local Stretch stretches[8];
thread_local unsigned next_stretch = 0;

}  // namespace

uint8_t* reach_from(CUdevice device, CUdeviceptr pointer, size_t bytes) {
  const uint64_t version = driver().version.load();
  for (const Stretch& known : stretches) {
    if (known.version == version && known.device == device && pointer >= known.begin &&
        pointer - known.begin + bytes <= known.bytes) {
      return known.memory + (pointer - known.begin);
    }
  }
  const std::lock_guard<std::recursive_mutex> lock(driver().mutex);
  Stretch& found = stretches[next_stretch++ % 8];
  found = {device, 0, 0, nullptr, version};
  if (Arena* arena = arena_of(pointer)) {
    if (arena->device != device) return nullptr;
    if (!arena->range(pointer, &found.begin, &found.bytes)) return nullptr;
    found.memory = arena->open(found.begin);
  } else {
    if (!is_pinned(pointer, 1)) return nullptr;
    const auto pinned = std::prev(driver().pinned.upper_bound(pointer));
    found.begin = pinned->first;
    found.bytes = pinned->second.bytes;
    found.memory = reinterpret_cast<uint8_t*>(found.begin);
  }
  const bool inside = pointer - found.begin + bytes <= found.bytes;
  return inside ? found.memory + (pointer - found.begin) : nullptr;
}

namespace {

// One attribute of an address; false: nothing is known of it.
bool attribute_of(CUdeviceptr pointer, int attribute, void* value) {
  Arena* arena = arena_of(pointer);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (arena != nullptr) {
    if (!arena->range(pointer, &base, &bytes)) return false;
  } else {
    if (!is_pinned(pointer, 1)) return false;
    const auto pinned = std::prev(driver().pinned.upper_bound(pointer));
    base = pinned->first;
    bytes = pinned->second.bytes;
  }
  switch (attribute) {
    case 1:  // context
      *static_cast<Context**>(value) =
          arena != nullptr ? &driver().contexts[arena->device] : current();
      return true;
    case 2:  // memory type: host, device
      *static_cast<unsigned*>(value) = arena != nullptr ? 2 : 1;
      return true;
    case 3:  // device pointer
      *static_cast<CUdeviceptr*>(value) = pointer;
      return true;
    case 4:  // host pointer
      if (arena != nullptr) return false;
      *static_cast<CUdeviceptr*>(value) = pointer;
      return true;
    case 6:  // synchronous operations: settable, nothing to see
    case 8:  // managed
      *static_cast<int*>(value) = 0;
      return true;
    case 7:  // a number of the allocation
      *static_cast<unsigned long long*>(value) = base;
      return true;
    case 9:  // device
      *static_cast<int*>(value) = arena != nullptr ? arena->device : 0;
      return true;
    case 11:  // range
      *static_cast<CUdeviceptr*>(value) = base;
      return true;
    case 12:
      *static_cast<size_t*>(value) = bytes;
      return true;
    case 13:  // mapped
      *static_cast<int*>(value) = 1;
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_API uint64_t fakecuda_pinned_bytes() {
  const std::lock_guard<std::recursive_mutex> lock(driver().mutex);
  uint64_t bytes = 0;
  for (const auto& [pointer, pinned] : driver().pinned) bytes += pinned.bytes;
  return bytes;
}

FAKECUDA_API CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  ENTER_UNLESS_CAPTURED();
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  auto& arena = driver().arenas[context->device];
  if (arena == nullptr) arena = std::make_unique<Arena>(context->device);
  *pointer = arena->allocate(bytes);
  return *pointer != 0 ? kSuccess : kOutOfMemory;
}

FAKECUDA_API CUresult cuMemFree_v2(CUdeviceptr pointer) {
  ENTER_UNLESS_CAPTURED();
  if (pointer == 0) return kSuccess;
  Arena* arena = arena_of(pointer);
  if (arena == nullptr) return kInvalidValue;
  const auto users = streams_of(&driver().contexts[arena->device], false);
  lock.unlock();  // what still uses it ends first, as it does in the real driver
  for (const auto& stream : users) stream->wait();
  lock.lock();
  return arena->free(pointer) ? kSuccess : kInvalidValue;
}

FAKECUDA_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER_CONTEXT();
  *total = Arena::kBytes;
  const auto& arena = driver().arenas[context->device];
  *free = Arena::kBytes - (arena != nullptr ? arena->allocated() : 0);
  return kSuccess;
}

FAKECUDA_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes,
                                              CUdeviceptr pointer) {
  ENTER_CONTEXT();
  CUdeviceptr found = 0;
  size_t all = 0;
  if (Arena* arena = arena_of(pointer)) {
    if (!arena->range(pointer, &found, &all)) return kNotFound;
  } else {
    if (!is_pinned(pointer, 1)) return kNotFound;
    const auto pinned = std::prev(driver().pinned.upper_bound(pointer));
    found = pinned->first;
    all = pinned->second.bytes;
  }
  if (base != nullptr) *base = found;
  if (bytes != nullptr) *bytes = all;
  return kSuccess;
}

FAKECUDA_API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer) {
  ENTER();
  return attribute_of(pointer, attribute, value) ? kSuccess : kInvalidValue;
}

// Of an address that it does not know the real one gives zeros, and success.
FAKECUDA_API CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                             CUdeviceptr pointer) {
  ENTER();
  for (unsigned i = 0; i < count; ++i) {
    const bool small = attributes[i] == 2 || attributes[i] == 6 || attributes[i] == 8 ||
                       attributes[i] == 9 || attributes[i] == 13;
    memset(values[i], 0, small ? 4 : 8);
    if (attributes[i] == 9) *static_cast<int*>(values[i]) = -2;  // no device
    attribute_of(pointer, attributes[i], values[i]);
  }
  return kSuccess;
}

FAKECUDA_API CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  ENTER_UNLESS_CAPTURED();
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  const size_t mapped = rounded_up(bytes, kPage);
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  driver().pinned[reinterpret_cast<CUdeviceptr>(memory)] = {bytes, true};
  ++driver().version;
  *pointer = memory;
  return kSuccess;
}

FAKECUDA_API CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}

FAKECUDA_API CUresult cuMemFreeHost(void* pointer) {
  ENTER_UNLESS_CAPTURED();
  const auto found = driver().pinned.find(reinterpret_cast<CUdeviceptr>(pointer));
  if (found == driver().pinned.end() || !found->second.own) return kInvalidValue;
  const size_t bytes = rounded_up(found->second.bytes, kPage);
  driver().pinned.erase(found);
  ++driver().version;
  const auto users = streams_of(context, false);
  lock.unlock();
  for (const auto& stream : users) stream->wait();
  munmap(pointer, bytes);
  return kSuccess;
}

FAKECUDA_API CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned) {
  ENTER_UNLESS_CAPTURED();
  const auto begin = reinterpret_cast<CUdeviceptr>(pointer);
  if (pointer == nullptr || bytes == 0 || arena_of(begin) != nullptr) return kInvalidValue;
  for (const auto& [other, pinned] : driver().pinned) {
    if (begin < other + pinned.bytes && other < begin + bytes) {
      return kHostMemoryAlreadyRegistered;
    }
  }
  driver().pinned[begin] = {bytes, false};
  ++driver().version;
  return kSuccess;
}

FAKECUDA_API CUresult cuMemHostUnregister(void* pointer) {
  ENTER_UNLESS_CAPTURED();
  const auto found = driver().pinned.find(reinterpret_cast<CUdeviceptr>(pointer));
  if (found == driver().pinned.end() || found->second.own) return kHostMemoryNotRegistered;
  driver().pinned.erase(found);
  ++driver().version;
  return kSuccess;
}

FAKECUDA_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned) {
  ENTER_CONTEXT();
  if (!is_pinned(reinterpret_cast<CUdeviceptr>(host), 1)) return kInvalidValue;
  *device = reinterpret_cast<CUdeviceptr>(host);
  return kSuccess;
}

// Of whole pages within one allocation, whose last page may be used in part only.
FAKECUDA_API CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t bytes,
                                                    int type, unsigned long long) {
  ENTER_CONTEXT();
  if (type != 1 || !exports_dma_bufs()) return kNotSupported;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Arena* arena = arena_of(pointer);
  CUdeviceptr base = 0;
  size_t room = 0;
  if (arena == nullptr || pointer % page != 0 || bytes % page != 0 || bytes == 0 ||
      !(arena->range(pointer, &base, &room) || arena->range(pointer + page - 1, &base, &room)) ||
      pointer + bytes > (base + room + page - 1) / page * page) {
    return kInvalidValue;
  }
  const int file = memfd_create("fake dma-buf", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kUnknown;
  *static_cast<int*>(handle) = file;
  return kSuccess;
}
