// What the unpack kernel is told, by value: no list is fetched over PCIe. Read by the CPU's
// compiler and by NVRTC.
#pragma once

namespace tcpx {

// One finished receive, where the plugin left it.
struct UnpackItem {
  unsigned long long fragments;  // of NetUnpackFragment: its slot of the descriptor queue
  // By value: blocks that ask host memory for one and the same line are served one after the other,
  // a microsecond each.
  unsigned fragment_count;
  unsigned long long bounce;       // that src_off counts from
  unsigned long long destination;  // that dst_off counts from
};

constexpr unsigned kUnpackItems = 126;  // of one launch: what fits into 4 KiB of arguments
constexpr unsigned kUnpackGroup = 32;   // fragments of a block, at most
constexpr unsigned kUnpackPage = 4096;  // bytes of a fragment that unpack_pages takes, at most

// Item y is put together by the blocks (x, y), each of which takes `group` fragments: a block finds
// its item without a search. What is read first lies side by side.
struct UnpackArguments {
  unsigned long long blocks_done;  // of u32 in GPU memory: zero before and after a launch
  unsigned long long ticket_at;    // of u64 in page-locked memory, which the CPU polls
  unsigned long long ticket;       // written there when all is in place
  unsigned blocks;  // that have a part: not all, where items have unlike numbers of fragments
  unsigned group;   // a power of two, kUnpackGroup at most; 0: nothing to copy, the ticket is all
  UnpackItem item[kUnpackItems];
};
static_assert(sizeof(UnpackArguments) <= 4096, "what every driver takes");

}  // namespace tcpx
