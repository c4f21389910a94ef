// Puts finished receives together where they belong. unpack_reference (reference.cc) says what the
// result must be.
#include "unpack/device_fragments.h"

namespace tcpx {
namespace {

constexpr u32 kQuadsAtOnce = 8;  // loads of a thread before its first store: the way to host memory
                                 // is long, and only bytes under way fill it
static_assert(32 * kQuadsAtOnce * kQuad == kUnpackPage, "a warp has one page under way");

// `quads` pieces of 16 bytes to an aligned address, from one that begins `skip` bytes behind an
// aligned one: every load and every store is whole and aligned.
template <bool kAligned>
__device__ __forceinline__ void move_quads(u64 from, u64 to, u32 quads, u32 lane) {
  constexpr u32 kLoads = kAligned ? kQuadsAtOnce : kQuadsAtOnce / 2;
  const u32 skip = static_cast<u32>(from % kQuad);
  from -= skip;
  for (u32 first = lane; first < quads; first += 32 * kLoads) {
    Quad low[kLoads], high[kLoads];
#pragma unroll
    for (u32 k = 0; k < kLoads; ++k) {
      const u32 i = first + 32 * k;
      if (i >= quads) continue;
      low[k] = load16(from + kQuad * i);
      if (!kAligned) high[k] = load16(from + kQuad * i + kQuad);
    }
#pragma unroll
    for (u32 k = 0; k < kLoads; ++k) {
      const u32 i = first + 32 * k;
      if (i >= quads) continue;
      store16(to + kQuad * i, kAligned ? low[k] : cut_out(low[k], high[k], skip));
    }
  }
}

// A warp copies `bytes`, at any alignment of either side.
__device__ __forceinline__ void move(u64 from, u64 to, u32 bytes, u32 lane) {
  const u32 to_aligned = static_cast<u32>(-to % kQuad);
  const u32 head = to_aligned < bytes ? to_aligned : bytes;
  const u32 quads = (bytes - head) / kQuad;
  const u32 tail = head + kQuad * quads;
  // The edges are under way before the middle is, and are stored after it.
  const bool in_head = lane < head;
  const bool in_tail = tail + lane < bytes;
  const u8 first = in_head ? load1(from + lane) : 0;
  const u8 last = in_tail ? load1(from + tail + lane) : 0;
  if ((from + head) % kQuad == 0) {
    move_quads<true>(from + head, to + head, quads, lane);
  } else {
    move_quads<false>(from + head, to + head, quads, lane);
  }
  if (in_head) store1(to + lane, first);
  if (in_tail) store1(to + tail + lane, last);
}

// The same of at most a page where all is a multiple of 16: as little as a copy takes.
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
