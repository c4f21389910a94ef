// Elements in GPU memory: written, poisoned and judged there, element for element as elements.cc
// does.
#include "cuda/device.h"
#include "memory/element_arguments.h"

namespace tcpx {
namespace {

struct Nothing {};

// What one block works on.
struct Unit {
  u64 address;
  u64 sender_offset;
  u64 ordinal;
  u64 keys;
  u32 bytes;
  u32 sender;
  u32 size;  // of an element; a guard is made of bytes
  bool guard;
};

__device__ __forceinline__ Unit unit_of(const ElementArguments& a, u64 number) {
  const u64 slot = number / a.pieces;
  const u64 piece = a.table + (number - slot * a.pieces) * sizeof(PayloadPiece);
  const Quad offsets = load16(piece);
  const u64 bytes_and_sender = load8(piece + 24);
  Unit unit;
  unit.address = a.base + slot * a.stride + (offsets.x | static_cast<u64>(offsets.y) << 32);
  unit.sender_offset = offsets.z | static_cast<u64>(offsets.w) << 32;
  unit.ordinal = slot * a.ordinals + load8(piece + 16);
  unit.keys = a.keys + slot * a.keys_each * 8;
  unit.bytes = static_cast<u32>(bytes_and_sender);
  unit.sender = static_cast<u32>(bytes_and_sender >> 32);
  unit.guard = unit.sender == kGuardSender;
  unit.size = unit.guard ? 1 : element_bytes(a.rule.type);
  return unit;
}

__device__ __forceinline__ ElementKey key_of(const Unit& unit, u32 rank, u64 at) {
  return element_key(load8(unit.keys + 8 * static_cast<u64>(rank)), at);
}

// The element that begins at byte i.
__device__ __forceinline__ u64 expected(const ElementArguments& a, const Unit& unit, u32 i) {
  if (unit.guard) return kGuardValue;
  const ElementRule& rule = a.rule;
  const u64 at = (unit.sender_offset + i) / unit.size;
  const u32 here = static_cast<u32>(at);
  if (rule.kind == kAsPayload) {
    return payload_element(rule.type, load8(unit.keys + 8 * static_cast<u64>(unit.sender)), at);
  }
  const u32 first =
      rule.active == rule.ranks ? 0 : first_active(rule, key_of(unit, rule.ranks, at), here);
  u64 value = neutral_value(rule);
  if (a.inputs) {
    if (is_active(rule, unit.sender, first)) {
      value = active_value(rule, key_of(unit, unit.sender, at), here);
    }
    return element_bits(rule, value, false);
  }
  u32 rank = first;
  for (u32 k = 0; k < rule.active; ++k) {
    value = folded(rule, value, active_value(rule, key_of(unit, rank, at), here), rank);
    rank = rank + 1 == rule.ranks ? 0 : rank + 1;
  }
  return element_bits(rule, value, true);
}

// Bytes i to i + 7, whole elements.
__device__ __forceinline__ u64 expected8(const ElementArguments& a, const Unit& unit, u32 i) {
  u64 word = 0;
  for (u32 k = 0; k < 8; k += unit.size) word |= expected(a, unit, i + k) << (8 * k);
  return word;
}

__device__ __forceinline__ u64 found_at(const Unit& unit, u32 i) {
  u64 bits = 0;
  for (u32 k = 0; k < unit.size; ++k) {
    bits |= static_cast<u64>(load1(unit.address + i + k)) << (8 * k);
  }
  return bits;
}

// Calls edge(i) for the elements before the first and behind the last 16 aligned bytes, and
// aligned(i) for each of those.
template <typename Edge, typename Aligned>
__device__ __forceinline__ void over(const Unit& unit, Edge edge, Aligned aligned) {
  const u32 to_aligned = static_cast<u32>(-unit.address & 15);
  const u32 head = to_aligned < unit.bytes ? to_aligned : unit.bytes;
  const u32 behind = head + (unit.bytes - head) / 16 * 16;
  const u32 mine = threadIdx.x * unit.size;
  if (mine < head) edge(mine);
  if (mine < unit.bytes - behind) edge(behind + mine);
  for (u32 i = head + 16 * threadIdx.x; i < behind; i += 16 * blockDim.x) aligned(i);
}

__device__ __forceinline__ bool every_block(const ElementArguments&) { return true; }

__device__ __forceinline__ void write(const ElementArguments& a, Nothing&) {
  for (u64 number = blockIdx.x; number < a.units; number += gridDim.x) {
    const Unit unit = unit_of(a, number);
    const u64 flip = unit.guard ? 0 : a.flip | static_cast<u64>(a.flip) << 32;
    over(
        unit,
        [&](u32 i) {
          const u64 bits = expected(a, unit, i) ^ flip;
          for (u32 k = 0; k < unit.size; ++k) {
            store1(unit.address + i + k, static_cast<u8>(bits >> (8 * k)));
          }
        },
        [&](u32 i) {
          const u64 low = expected8(a, unit, i) ^ flip, high = expected8(a, unit, i + 8) ^ flip;
          store16(unit.address + i, {static_cast<u32>(low), static_cast<u32>(low >> 32),
                                     static_cast<u32>(high), static_cast<u32>(high >> 32)});
        });
  }
}

__device__ __forceinline__ void verify(const ElementArguments& a, Nothing&) {
  for (u64 number = blockIdx.x; number < a.units; number += gridDim.x) {
    const Unit unit = unit_of(a, number);
    u32 wrong = 0;
    u64 first = ~0ull;
    const auto edge = [&](u32 i) {
      if (found_at(unit, i) == expected(a, unit, i)) return;
      ++wrong;
      const u64 ordinal = unit.ordinal + i;
      first = ordinal < first ? ordinal : first;
    };
    over(unit, edge, [&](u32 i) {
      const Quad found = load16(unit.address + i);
      const u64 low = expected8(a, unit, i), high = expected8(a, unit, i + 8);
      if (low == (found.x | static_cast<u64>(found.y) << 32) &&
          high == (found.z | static_cast<u64>(found.w) << 32)) {
        return;
      }
      for (u32 k = 0; k < 16; k += unit.size) edge(i + k);
    });
    if (wrong == 0) continue;
    add_count(a.verdict + (unit.guard ? 8 : 0), wrong);
    keep_least(a.verdict + 16, first);
  }
}

}  // namespace

TCPX_KERNEL(elements_write, ElementArguments, Nothing, every_block, write)
TCPX_KERNEL(elements_verify, ElementArguments, Nothing, every_block, verify)

}  // namespace tcpx
