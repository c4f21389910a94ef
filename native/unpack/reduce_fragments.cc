#include <algorithm>
#include <cstring>

#include "reduce/reduce.h"
#include "unpack/unpack.h"

namespace tcpx {
namespace {

constexpr uint64_t kMostElementBytes = 8;

// Byte `at` of what was received, looked for from fragment `from` on: most plugins list fragments
// in order. NULL where it is nobody's.
const uint8_t* find_byte(const UnpackSource& source, uint64_t from, uint64_t at) {
  for (uint64_t k = 0; k < source.count; ++k) {
    const NetUnpackFragment& fragment = source.fragments[(from + k) % source.count];
    if (at - fragment.dst_off < fragment.len) {
      return source.bounce + fragment.src_off + (at - fragment.dst_off);
    }
  }
  return nullptr;
}

}  // namespace

UnpackResult reduce_fragments(const Arithmetic& arithmetic, const UnpackSource& source,
                              const uint8_t* local, uint8_t* destination, uint64_t posted) {
  const UnpackResult result = unpack_bounds(source, posted);
  if (!result.in_bounds) return result;
  const uint64_t size = element_bytes(arithmetic.type);
  for (uint64_t i = 0; i < source.count; ++i) {
    const NetUnpackFragment& fragment = source.fragments[i];
    const uint64_t begin = fragment.dst_off;
    const uint64_t end = begin + fragment.len;
    const uint64_t first = (begin + size - 1) / size * size;
    const uint64_t last = end / size * size;
    const uint8_t* from = source.bounce + fragment.src_off;
    if (first < last) {
      reduce(arithmetic, from + (first - begin), local + first, destination + first, last - first);
    }
    // The element that begins here and ends elsewhere is done here.
    if (last < begin || last == end) continue;
    uint8_t gathered[kMostElementBytes];
    bool whole = true;
    for (uint64_t k = 0; k < size; ++k) {
      const uint8_t* byte = find_byte(source, i + (last + k >= end), last + k);
      whole &= byte != nullptr;
      if (byte != nullptr) gathered[k] = *byte;
    }
    if (whole) reduce(arithmetic, gathered, local + last, destination + last, size);
  }
  return result;
}

}  // namespace tcpx
