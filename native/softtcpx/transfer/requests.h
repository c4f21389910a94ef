// The 16 requests of a connection, crossing between the caller and the owner without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "net/abi_v7.h"
#include "softtcpx/transfer/regions.h"

namespace softtcpx {

class Comm;

// Filled by the caller before it is published by `posted`; from then on the owner's but for what is
// said to be the caller's, until `completed` hands it back.
struct alignas(64) Request {
  Comm* comm = nullptr;  // for good
  uint8_t* data = nullptr;
  uint64_t capacity = 0;   // bytes to send, or room to receive
  uint64_t total = 0;      // bytes of the message, as its first piece announced it
  uint64_t scheduled = 0;  // bytes of the pieces that a socket has begun to carry
  uint64_t left = 0;       // bytes; sending an empty one, and receiving before it is announced: 1
  // Sending from a GPU, the caller's: bytes of which the copy to the host has begun, and the number
  // of the last of those copies.
  uint64_t copied = 0;
  uint32_t number = 0;  // receiving in place: of the receive
  bool announced = false;
  Memory memory = Memory::kHost;  // of `data`; kHost too where there are no bytes
  // Of the kind that puts data in place. A message takes that of several receives whose tag it has.
  bool placed = false;  // receiving: into such memory
  int32_t tag = 0;
  uint32_t together = 1;  // receives that were posted in one call,
  uint64_t first = 0;     // and the number of their first
  uint64_t message = 0;   // that has taken this one, once that is announced

  // Receiving: into bounce pages.
  bool scattered() const { return memory != Memory::kHost && !placed; }

  bool complete() const { return left == 0; }
};

// Requests are numbered from 0; number n lives in slot n % 16. Three counters in FIFO order:
// seen <= completed <= posted, and for receives consumed <= seen. A send out of GPU memory may be
// seen before it is completed: its buffer is free again when the copy has landed.
struct RequestRing {
  static constexpr uint64_t kSlots = kNetMaxRequests;

  Request& slot(uint64_t sequence) { return slots[sequence % kSlots]; }

  std::array<Request, kSlots> slots;
  alignas(64) std::atomic<uint64_t> posted{0};     // written by the caller
  uint64_t seen = 0;                               // the caller's own: test said done
  std::atomic<uint64_t> consumed{0};               // written by the caller: slots free again
  alignas(64) std::atomic<uint64_t> completed{0};  // written by the owner
};

}  // namespace softtcpx
