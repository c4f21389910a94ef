// The payload in GPU memory: written, poisoned and judged there, byte for byte as payload.cc does.
#include "cuda/device.h"
#include "memory/payload_arguments.h"
#include "memory/payload_word.h"

namespace tcpx {
namespace {

struct Nothing {};

// What one block works on, and how its bytes are made.
struct Unit {
  u64 address;
  u64 sender_offset;
  u64 ordinal;
  u32 bytes;
  u32 add, stir, flip;
  bool guard;
};

__device__ __forceinline__ Unit unit_of(const PayloadArguments& a, u64 number) {
  const u64 slot = number / a.pieces;
  const u64 piece = a.table + (number - slot * a.pieces) * sizeof(PayloadPiece);
  const Quad offsets = load16(piece);
  const u64 ordinal = load8(piece + 16);
  const u64 bytes_and_sender = load8(piece + 24);
  Unit unit;
  unit.address = a.base + slot * a.stride + (offsets.x | static_cast<u64>(offsets.y) << 32);
  unit.sender_offset = offsets.z | static_cast<u64>(offsets.w) << 32;
  unit.ordinal = slot * a.ordinals + ordinal;
  unit.bytes = static_cast<u32>(bytes_and_sender);
  const u32 sender = static_cast<u32>(bytes_and_sender >> 32);
  const u64 key = payload_key_bits(a.seed, sender, a.iteration + slot);
  unit.add = static_cast<u32>(key);
  unit.stir = static_cast<u32>(key >> 32);
  unit.flip = a.flip;
  unit.guard = sender == kGuardSender;
  return unit;
}

__device__ __forceinline__ u32 word(const Unit& unit, u64 index) {
  return payload_word(static_cast<u32>(index), unit.add, payload_stir(unit.stir, index));
}

__device__ __forceinline__ u8 expected1(const Unit& unit, u32 i) {
  if (unit.guard) return kGuardValue;
  const u64 offset = unit.sender_offset + i;
  return static_cast<u8>((word(unit, offset / 4) ^ unit.flip) >> (8 * (offset % 4)));
}

// Bytes i to i + 15. The sender's words may begin at any byte of ours.
__device__ __forceinline__ Quad expected16(const Unit& unit, u32 i) {
  if (unit.guard) {
    const u32 guard = kGuardValue * 0x01010101u;
    return {guard, guard, guard, guard};
  }
  const u64 offset = unit.sender_offset + i;
  const u64 first = offset / 4;
  const u32 shift = 8 * static_cast<u32>(offset % 4);
  u32 words[5];
  for (int k = 0; k < 5; ++k) words[k] = word(unit, first + k) ^ unit.flip;
  return {shift_right(words[0], words[1], shift), shift_right(words[1], words[2], shift),
          shift_right(words[2], words[3], shift), shift_right(words[3], words[4], shift)};
}

// Calls edge(i) for the bytes before the first and behind the last 16 aligned ones, and aligned(i)
// for each of those.
template <typename Edge, typename Aligned>
__device__ __forceinline__ void over(const Unit& unit, Edge edge, Aligned aligned) {
  const u32 to_aligned = static_cast<u32>(-unit.address & 15);
  const u32 head = to_aligned < unit.bytes ? to_aligned : unit.bytes;
  const u32 behind = head + (unit.bytes - head) / 16 * 16;
  if (threadIdx.x < head) edge(threadIdx.x);
  if (threadIdx.x < unit.bytes - behind) edge(behind + threadIdx.x);
  for (u32 i = head + 16 * threadIdx.x; i < behind; i += 16 * blockDim.x) aligned(i);
}

__device__ __forceinline__ bool every_block(const PayloadArguments&) { return true; }

__device__ __forceinline__ void write(const PayloadArguments& a, Nothing&) {
  for (u64 number = blockIdx.x; number < a.units; number += gridDim.x) {
    const Unit unit = unit_of(a, number);
    over(
        unit, [&](u32 i) { store1(unit.address + i, expected1(unit, i)); },
        [&](u32 i) { store16(unit.address + i, expected16(unit, i)); });
  }
}

__device__ __forceinline__ void verify(const PayloadArguments& a, Nothing&) {
  for (u64 number = blockIdx.x; number < a.units; number += gridDim.x) {
    const Unit unit = unit_of(a, number);
    u32 wrong = 0;
    u64 first = ~0ull;  // each thread sees its bytes in two stretches: the least is looked for
    const auto edge = [&](u32 i) {
      if (load1(unit.address + i) == expected1(unit, i)) return;
      ++wrong;
      const u64 ordinal = unit.ordinal + i;
      first = ordinal < first ? ordinal : first;
    };
    over(unit, edge, [&](u32 i) {
      const Quad found = load16(unit.address + i);
      const Quad expected = expected16(unit, i);
      if (((found.x ^ expected.x) | (found.y ^ expected.y) | (found.z ^ expected.z) |
           (found.w ^ expected.w)) == 0) {
        return;
      }
      for (u32 k = 0; k < 16; ++k) edge(i + k);
    });
    if (wrong == 0) continue;
    add_count(a.verdict + (unit.guard ? 8 : 0), wrong);
    keep_least(a.verdict + 16, first);
  }
}

}  // namespace

TCPX_KERNEL(payload_write, PayloadArguments, Nothing, every_block, write)
TCPX_KERNEL(payload_verify, PayloadArguments, Nothing, every_block, verify)

}  // namespace tcpx
