// What the kernels of elements are told; read by the CPU's compiler and by NVRTC. Pieces and
// findings are those of the payload, memory/payload_arguments.h.
#pragma once

#include "memory/element_rule.h"
#include "memory/payload_arguments.h"

namespace tcpx {

// Unit u is piece u % pieces of slot u / pieces, as of the payload.
struct ElementArguments {
  unsigned long long base;    // of the first slot
  unsigned long long stride;  // from slot to slot, whole elements
  unsigned long long table;   // of PayloadPiece, whose sender is an index in the group
  unsigned long long keys;    // of u64: keys_each for each slot; see element_keys
  unsigned long long units;
  unsigned long long ordinals;  // bytes of all pieces together
  unsigned long long verdict;   // of PayloadFindings; the kernel that writes has none
  unsigned keys_each;
  unsigned pieces;
  unsigned flip;    // all ones: poison
  unsigned inputs;  // 1: what a sender puts in, 0: what must come out
  ElementRule rule;
};

}  // namespace tcpx
