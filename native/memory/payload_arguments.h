// What the payload kernels are told; read by the CPU's compiler and by NVRTC.
#pragma once

namespace tcpx {

// A stretch of a slot, short enough for one block of threads.
struct PayloadPiece {
  unsigned long long offset;         // in the slot
  unsigned long long sender_offset;  // in the sender's slot
  unsigned long long ordinal;        // bytes of all pieces before it
  unsigned bytes;
  unsigned sender;  // kGuardSender: the bytes behind the slot, which nobody may write
};

constexpr unsigned kGuardSender = 0xffffffffu;
constexpr unsigned kGuardValue = 0x5A;

// Unit u is piece u % pieces of slot u / pieces, which carries iteration + u / pieces.
struct PayloadArguments {
  unsigned long long base;    // of the first slot
  unsigned long long stride;  // from slot to slot
  unsigned long long table;   // of PayloadPiece
  unsigned long long units;
  unsigned long long iteration;
  unsigned long long seed;
  unsigned long long ordinals;  // bytes of all pieces together
  unsigned long long verdict;   // of PayloadFindings; the kernel that writes has none
  unsigned pieces;
  unsigned flip;  // all ones: poison
};

// Zeroed before the launch, but for `first`, which is all ones.
struct PayloadFindings {
  unsigned long long wrong;
  unsigned long long guard_wrong;
  unsigned long long first;  // the least ordinal of a wrong byte, `ordinals` added for each slot
};

}  // namespace tcpx
