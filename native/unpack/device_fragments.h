// What kernels over fragments share: which a block takes, bytes at any alignment, the ticket.
#pragma once

#include "cuda/moves.h"
#include "unpack/kernel_arguments.h"

namespace tcpx {
namespace {

struct Shared {
  Quad fragment[kUnpackGroup];  // src_off, len, dst_off
  u64 bounce;
  u64 destination;
};

template <typename Arguments>
__device__ __forceinline__ const auto& item_of_block(const Arguments& a) {
  return a.item[blockIdx.y];
}

// There are as many blocks for each item as for the one of most fragments. The first has a part:
// no item is empty, and where there is none it is left to say so.
template <typename Arguments>
__device__ __forceinline__ bool has_part(const Arguments& a) {
  return blockIdx.x == 0 || blockIdx.x * a.group < item_of_block(a).fragment_count;
}

// The descriptors of the block's fragments, side by side: one read over PCIe where they fit in one.
// What lies behind the last one is read, too, which is quicker than to look first.
template <typename Arguments>
__device__ __forceinline__ void take(const Arguments& a, Shared& shared) {
  if (threadIdx.x >= a.group) return;
  const auto& item = item_of_block(a);
  const u32 index = blockIdx.x * a.group + threadIdx.x;
  Quad fragment = load16_uncached(item.fragments + index * sizeof(Quad));
  if (index >= item.fragment_count) fragment.y = 0;
  shared.fragment[threadIdx.x] = fragment;
  if (threadIdx.x > 0) return;
  shared.bounce = item.bounce;
  shared.destination = item.destination;
}

// The last block of those that have a part says so to the CPU, if a launch has a ticket.
template <typename Arguments>
__device__ __forceinline__ void report(const Arguments& a, Shared&) {
  if (threadIdx.x > 0 || a.ticket_at == 0) return;
  const u32 last = a.blocks - 1;
  if (last > 0 && count_released(a.blocks_done, last) < last) return;
  store8_for_host(a.ticket_at, a.ticket);
}

}  // namespace
}  // namespace tcpx
