// Puts finished receives together where they belong. unpack_reference (reference.cc) says what the
// result must be.
#include "unpack/device_fragments.h"

namespace tcpx {
namespace {

static_assert(32 * kQuadsAtOnce * kQuad == kUnpackPage, "a warp has one page under way");

// As `move`, of at most a page where all is a multiple of 16: as little as a copy takes.
__device__ __forceinline__ void move_page(u64 from, u64 to, u32 bytes, u32 lane) {
  const u32 begin = kQuad * lane;
  const u32 left = bytes > begin ? bytes - begin : 0;
  Quad quads[kQuadsAtOnce];
#pragma unroll
  for (u32 k = 0; k < kQuadsAtOnce; ++k) {
    if (left > 32 * kQuad * k) quads[k] = load16(from + begin + 32 * kQuad * k);
  }
#pragma unroll
  for (u32 k = 0; k < kQuadsAtOnce; ++k) {
    if (left > 32 * kQuad * k) store16(to + begin + 32 * kQuad * k, quads[k]);
  }
}

// A warp a fragment.
template <bool kPages>
__device__ __forceinline__ void put_together(const UnpackArguments& a, Shared& shared) {
  const u32 lane = threadIdx.x % 32;
  for (u32 f = threadIdx.x / 32; f < a.group; f += blockDim.x / 32) {
    const Quad fragment = shared.fragment[f];
    const u64 from = shared.bounce + fragment.x;
    const u64 to = shared.destination + (fragment.z | static_cast<u64>(fragment.w) << 32);
    if (kPages) {
      move_page(from, to, fragment.y, lane);
    } else {
      move(from, to, fragment.y, lane);
    }
  }
}

}  // namespace

TCPX_KERNEL(unpack_fragments, UnpackArguments, Shared, has_part, take<UnpackArguments>,
            put_together<false>, report<UnpackArguments>)
TCPX_KERNEL(unpack_pages, UnpackArguments, Shared, has_part, take<UnpackArguments>,
            put_together<true>, report<UnpackArguments>)

}  // namespace tcpx
