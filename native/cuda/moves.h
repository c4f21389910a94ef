// How a warp moves bytes between any two places, each at any alignment.
#pragma once

#include "cuda/device.h"

namespace tcpx {
namespace {

constexpr u32 kQuad = 16;        // bytes of the widest access
constexpr u32 kQuadsAtOnce = 8;  // loads of a thread before its first store: the way to host memory
                                 // is long, and only bytes under way fill it
// 16 bytes from byte `skip` of low:high.
__device__ __forceinline__ Quad cut_out(Quad low, Quad high, u32 skip) {
  u32 w[7] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z};
  u32 last = high.w;
  if (skip & 8) {
    w[0] = w[2], w[1] = w[3], w[2] = w[4], w[3] = w[5], w[4] = w[6], w[5] = last;
  }
  if (skip & 4) {
    w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = w[4], w[4] = w[5];
  }
  const u32 bits = 8 * (skip & 3);
  return {shift_right(w[0], w[1], bits), shift_right(w[1], w[2], bits),
          shift_right(w[2], w[3], bits), shift_right(w[3], w[4], bits)};
}

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

}  // namespace
}  // namespace tcpx
