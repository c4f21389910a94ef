// What the kernels that reduce are told, by value. Read by the CPU's compiler and by NVRTC.
#pragma once

namespace tcpx {

// One finished receive, as UnpackItem, and the operand that it is reduced with.
struct ReduceItem {
  unsigned long long fragments;
  unsigned fragment_count;
  unsigned long long bounce;
  unsigned long long destination;
  unsigned long long local;
};

constexpr unsigned kReduceItems = 96;  // of one launch

// As UnpackArguments; without a ticket (ticket_at 0) another launch behind it has one.
struct ReduceArguments {
  unsigned long long blocks_done;
  unsigned long long ticket_at;
  unsigned long long ticket;
  unsigned blocks;
  unsigned group;
  ReduceItem item[kReduceItems];
};
static_assert(sizeof(ReduceArguments) <= 4096, "what every driver takes");

// Elements that lie in one piece.
struct LocalArguments {
  unsigned long long from;
  unsigned long long local;  // the other operand of a reduction
  unsigned long long destination;
  unsigned long long bytes;
  double factor;  // of a scaling
};

}  // namespace tcpx
