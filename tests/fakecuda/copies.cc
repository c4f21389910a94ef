// Copies and fills, each as the stream gets to it.
#include <algorithm>
#include <cstring>

#include "fake.h"

namespace fakecuda {
namespace {

// An address as a copy may name it: the forbidden view is translated, the rest is the host's.
enum class Side { kHost, kDevice, kEither };

uint8_t* side_of(CUdeviceptr pointer, size_t bytes, Side side) {
  const bool on_device = arena_of(pointer) != nullptr;
  if (side == Side::kHost && on_device) return nullptr;
  // Page-locked memory is device memory too, by unified addressing.
  if (side == Side::kDevice && !on_device && !is_pinned(pointer, bytes)) return nullptr;
  return reach(pointer, bytes, true);
}

// As a call is named. One that is named synchronous returns early, too, where it has no more use
// for the host's memory.
enum class Named { kSynchronous, kAsynchronous };
constexpr Named kSync = Named::kSynchronous, kAsync = Named::kAsynchronous;

// The caller has driver().mutex.
CUresult copy(std::unique_lock<std::recursive_mutex>& lock, Context* context, CUdeviceptr to,
              Side to_side, CUdeviceptr from, Side from_side, size_t bytes, void* handle,
              Named named) {
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  if (bytes == 0) return kSuccess;
  uint8_t* target = side_of(to, bytes, to_side);
  const uint8_t* source = side_of(from, bytes, from_side);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  const bool up = arena_of(to) != nullptr, down = arena_of(from) != nullptr;
  const bool from_pageable = !down && !is_pinned(from, bytes);
  const bool to_pageable = !up && !is_pinned(to, bytes);
  const bool staged = up && from_pageable;  // into memory of the driver's, and on from there later
  const bool wait =
      named == kSync ? !staged && !(up && down) : !up && !down && (from_pageable || to_pageable);
  keep_order(lock, *stream);
  if (staged) {
    if (named == kSync) stream->wait();
    stream->submit([target, kept = std::vector<uint8_t>(source, source + bytes)] {
      memcpy(target, kept.data(), kept.size());
    });
  } else {
    stream->submit([target, source, bytes] { memmove(target, source, bytes); });
  }
  if (wait) stream->wait();
  return wait ? context->error.load() : kSuccess;
}

// The caller has driver().mutex. Page-locked memory is filled when a synchronous call returns.
template <typename Word>
CUresult fill(std::unique_lock<std::recursive_mutex>& lock, Context* context, CUdeviceptr to,
              Word word, size_t count, void* handle, Named named) {
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  if (count == 0) return kSuccess;
  uint8_t* target = side_of(to, count * sizeof(word), Side::kDevice);
  if (target == nullptr || to % sizeof(word) != 0) return kInvalidValue;
  const bool wait = named == kSync && arena_of(to) == nullptr;
  keep_order(lock, *stream);
  stream->submit([target, word, count] {
    auto* words = reinterpret_cast<Word*>(target);
    std::fill(words, words + count, word);
  });
  if (wait) stream->wait();
  return wait ? context->error.load() : kSuccess;
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace
}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kEither, from, Side::kEither, bytes, nullptr, kSync);
}
FAKECUDA_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kEither, from, Side::kEither, bytes, stream, kAsync);
}
FAKECUDA_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, address(from), Side::kHost, bytes, nullptr, kSync);
}
FAKECUDA_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                           void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, address(from), Side::kHost, bytes, stream, kAsync);
}
FAKECUDA_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, address(to), Side::kHost, from, Side::kDevice, bytes, nullptr, kSync);
}
FAKECUDA_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, address(to), Side::kHost, from, Side::kDevice, bytes, stream, kAsync);
}
FAKECUDA_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, from, Side::kDevice, bytes, nullptr, kSync);
}
FAKECUDA_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                           void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, from, Side::kDevice, bytes, stream, kAsync);
}

// Of the last to the first: they are in no order, and all checked before any begins.
FAKECUDA_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes,
                                            size_t count, const int* attributes,
                                            const size_t* first_of_each, size_t attribute_count,
                                            void* stream) {
  ENTER_CONTEXT();
  constexpr int kInStreamOrder = 1;
  if (stream == nullptr || count == 0 || attribute_count != 1 || first_of_each[0] != 0 ||
      attributes[0] != kInStreamOrder)
    return kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    if (side_of(to[i], bytes[i], Side::kEither) == nullptr ||
        side_of(from[i], bytes[i], Side::kEither) == nullptr)
      return kInvalidValue;
  }
  for (size_t i = count; i-- > 0;) {
    const CUresult code =
        copy(lock, context, to[i], Side::kEither, from[i], Side::kEither, bytes[i], stream, kAsync);
    if (code != kSuccess) return code;
    if (!lock.owns_lock()) lock.lock();
  }
  return kSuccess;
}

FAKECUDA_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, nullptr, kSync);
}
FAKECUDA_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                      void* stream) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, stream, kAsync);
}
FAKECUDA_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, nullptr, kSync);
}
FAKECUDA_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void* stream) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, stream, kAsync);
}
