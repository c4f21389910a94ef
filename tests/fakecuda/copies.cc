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

// Work of the legacy stream comes after that of every blocking one. Releases the lock.
void order_legacy(std::unique_lock<std::recursive_mutex>& lock, Context* context, void* handle) {
  const auto others = streams_of(context, true);
  lock.unlock();
  if (handle != nullptr) return;
  for (const auto& other : others) other->wait();
}

// The caller has driver().mutex. Where the host's part is not page-locked nothing is asynchronous.
CUresult copy(std::unique_lock<std::recursive_mutex>& lock, Context* context, CUdeviceptr to,
              Side to_side, CUdeviceptr from, Side from_side, size_t bytes, void* handle,
              bool wait) {
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  if (bytes == 0) return kSuccess;
  uint8_t* target = side_of(to, bytes, to_side);
  const uint8_t* source = side_of(from, bytes, from_side);
  if (target == nullptr || source == nullptr) return kInvalidValue;
  for (const CUdeviceptr end : {to, from}) {
    wait = wait || (arena_of(end) == nullptr && !is_pinned(end, bytes));
  }
  order_legacy(lock, context, handle);
  stream->submit([target, source, bytes] { memmove(target, source, bytes); });
  if (wait) stream->wait();
  return wait ? context->error.load() : kSuccess;
}

template <typename Word>
CUresult fill(std::unique_lock<std::recursive_mutex>& lock, Context* context, CUdeviceptr to,
              Word word, size_t count, void* handle, bool wait) {
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  if (count == 0) return kSuccess;
  uint8_t* target = side_of(to, count * sizeof(word), Side::kDevice);
  if (target == nullptr || to % sizeof(word) != 0) return kInvalidValue;
  order_legacy(lock, context, handle);
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
  return copy(lock, context, to, Side::kEither, from, Side::kEither, bytes, nullptr, true);
}
FAKECUDA_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kEither, from, Side::kEither, bytes, stream, false);
}
FAKECUDA_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, address(from), Side::kHost, bytes, nullptr, true);
}
FAKECUDA_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                           void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, address(from), Side::kHost, bytes, stream, false);
}
FAKECUDA_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, address(to), Side::kHost, from, Side::kDevice, bytes, nullptr, true);
}
FAKECUDA_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, address(to), Side::kHost, from, Side::kDevice, bytes, stream, false);
}
FAKECUDA_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, from, Side::kDevice, bytes, nullptr, false);
}
FAKECUDA_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                           void* stream) {
  ENTER_CONTEXT();
  return copy(lock, context, to, Side::kDevice, from, Side::kDevice, bytes, stream, false);
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
        copy(lock, context, to[i], Side::kEither, from[i], Side::kEither, bytes[i], stream, false);
    if (code != kSuccess) return code;
    if (!lock.owns_lock()) lock.lock();
  }
  return kSuccess;
}

FAKECUDA_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, nullptr, false);
}
FAKECUDA_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                      void* stream) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, stream, false);
}
FAKECUDA_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, nullptr, false);
}
FAKECUDA_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void* stream) {
  ENTER_CONTEXT();
  return fill(lock, context, to, value, count, stream, false);
}
