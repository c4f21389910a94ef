// What a receiver tells its sender on the control connection: how many receives are posted, where
// the sender waits for them, and which pieces that were lent are read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "softtcpx/protocol/wire.h"

namespace softtcpx {

class ReceiveNotices {
 public:
  explicit ReceiveNotices(size_t sockets) : sockets_(sockets) {}

  // The last byte of a piece that was lent is read.
  void was_read(size_t socket) { ++lent_[socket].read; }
  // All that there is room for; the rest later, with what has come meanwhile: while a sender waits
  // there are receives, and this is asked again. `posted`: receives, where they are told.
  void send(int control, uint64_t posted);

 private:
  struct Lent {
    uint64_t read = 0, returned = 0;  // pieces, and those of which the sender knows
  };

  bool next(uint64_t posted);

  const size_t sockets_;
  std::array<Lent, kMaxSockets> lent_{};
  uint64_t credited_ = 0;  // receives that the sender knows of
  Notice notice_{};
  uint32_t left_ = 0;  // bytes at its end that are not sent yet
};

}  // namespace softtcpx
