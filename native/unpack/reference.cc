#include <algorithm>
#include <atomic>
#include <cstring>

#include "unpack/kernel_arguments.h"
#include "unpack/unpack.h"

namespace tcpx {
UnpackSource unpack_source(const NetUnpackDevice& device, uint64_t sequence, uint64_t posted) {
  const uint64_t slot = sequence % kNetUnpackSlots;
  // The plugin's helper threads write descriptors and count; its `test` said done before this.
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t count =
      posted > 0 ? *static_cast<const volatile uint64_t*>(&device.meta->cnt[slot]) : 0;
  return {device.meta->mem[slot], count, static_cast<const uint8_t*>(device.bounce_buf)};
}

UnpackResult unpack_bounds(const UnpackSource& source, uint64_t posted) {
  UnpackResult result{0, source.count <= kNetUnpackFragments, true};
  if (!result.in_bounds) return result;
  uint64_t any_bits = 0;  // judged at the end: this is in timed batches
  uint32_t longest = 0;
  for (uint64_t i = 0; i < source.count; ++i) {
    const NetUnpackFragment& fragment = source.fragments[i];
    result.bytes += fragment.len;
    any_bits |= fragment.src_off | fragment.len | fragment.dst_off;
    longest = std::max(longest, fragment.len);
    // In this order a dst_off near 2^64 cannot wrap around.
    result.in_bounds &= fragment.dst_off <= posted && fragment.len <= posted - fragment.dst_off;
  }
  result.pages = any_bits % 16 == 0 && longest <= kUnpackPage;
  return result;
}

UnpackResult unpack_reference(const UnpackSource& source, uint8_t* destination, uint64_t posted) {
  const UnpackResult result = unpack_bounds(source, posted);
  for (uint64_t i = 0; result.in_bounds && i < source.count; ++i) {
    const NetUnpackFragment& fragment = source.fragments[i];
    memcpy(destination + fragment.dst_off, source.bounce + fragment.src_off, fragment.len);
  }
  return result;
}

}  // namespace tcpx
