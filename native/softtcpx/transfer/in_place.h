// Receives of the kind that puts data in place (SOFTTCPX_LIKE=direct): how bytes get into memory
// that is a GPU's, or stands for one; which bytes are hidden until a flush; and the requests of a
// group of receives and of a flush.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "softtcpx/environment/objects.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/gpu/placer.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/regions.h"
#include "softtcpx/transfer/requests.h"

namespace softtcpx {

class RecvComm;

// The request of a caller: of up to kMostReceives receives, or of a flush of as many.
struct Ticket : Object {
  Ticket() : Object(ObjectKind::kTicket) {}

  RecvComm* comm = nullptr;
  bool taken = false;
  bool flushes = false;
  int n = 0;
  int done = 0;        // of the receives
  int64_t tests = 0;   // of the flush
  uint64_t first = 0;  // the number of the first receive; the others follow it
  std::array<uint8_t*, kMostReceives> flushed{};
};

class InPlace {
 public:
  static constexpr uint64_t kHiddenBytes = 4096;  // of a receive, at its end

  // Of a connection with so many data sockets.
  InPlace(RecvComm& comm, const Settings& settings, size_t sockets);

  // The caller's part.
  // What moving bytes into such memory takes, before the first receive of it. Throws CudaError,
  // std::system_error. False if this connection moves bytes into another GPU.
  bool serve(Memory memory, const Gpu& gpu);
  bool serves(Memory memory, const Gpu& gpu) const;
  Ticket* take_ticket();  // null: all are taken
  // Of the next receive: its tag, how many are posted in one call, and the number of their first.
  struct Group {
    int32_t tag = 0;
    uint32_t together = 1;
    uint64_t first = 0;
  };
  Group next;
  void prepare(Request& request, uint64_t number) const;
  // It is done: what of the receive is hidden waits for its flush.
  void done(const Request& request);
  // Shows what is hidden of a receive that was posted there; false when the driver refuses.
  bool show(uint8_t* data);

  // The owner's part: so many bytes of a receive belong at `to`.
  bool put(size_t socket, const Request& request, uint8_t* to, const uint8_t* from, uint64_t bytes);
  // The receive of a message: of those that were posted with the one of its number that with its
  // tag. Null: none has it.
  Request* match(RequestRing& ring, const ChunkHeader& header) const;
  // Where a socket may be read into first.
  uint8_t* buffer(size_t socket, Memory memory) const { return placers(memory)[socket]->buffer(); }

 private:
  // Of a receive whose flush is still to come.
  struct Hidden {
    Memory memory;
    uint64_t offset, bytes;
    std::array<uint8_t, kHiddenBytes> content;
  };
  using Placers = std::vector<std::unique_ptr<Placer>>;  // by socket, and the caller's own

  const Placers& placers(Memory memory) const { return placers_[memory == Memory::kGpu]; }
  uint64_t hidden_bytes(const Request& request) const;

  const bool hides_;
  const size_t sockets_;
  Placers placers_[2];  // into host pages, and into a GPU
  int ordinal_ = -1;    // of that
  std::array<Ticket, 4 * RequestRing::kSlots> tickets_;
  // What came last of each receive, by its slot.
  std::unique_ptr<std::array<uint8_t, kHiddenBytes>[]> ends_;
  std::map<uint8_t*, Hidden> hidden_;  // by where the receive was posted
};

}  // namespace softtcpx
