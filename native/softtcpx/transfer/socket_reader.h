// One data socket of a receiving connection: the piece that is under way, and a stage.
//
// Behind the rest of the current piece, each read takes what follows it into the stage: the next
// header, and whole small messages with it. A large piece is copied once, by the kernel: behind
// one, another is expected, and a read takes its header and no more into the stage.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>

#include "softtcpx/gpu/placer.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/bounce.h"
#include "softtcpx/transfer/requests.h"

namespace softtcpx {

struct SocketReader {
  static constexpr uint32_t kStageBytes = 8192 + 2 * sizeof(ChunkHeader);

  uint32_t staged() const { return end - begin; }
  // Where a read goes behind the piece.
  iovec rest_of_stage() {
    const bool fits = expects_large && staged() < sizeof(ChunkHeader);
    return {&stage[end], fits ? sizeof(ChunkHeader) - staged() : stage.size() - end};
  }
  // Once only the beginning of a header is left: makes it the beginning of the stage.
  void compact();

  // Bytes of the piece that have their place.
  uint64_t room() const {
    if (placed) return left < Placer::kBytes ? left : Placer::kBytes;
    return scatter != nullptr ? scatter->room() : left;
  }

  // Of what was looked at all is delivered, and nothing is taken out.
  bool holds() const { return peeked > 0 && staged() == 0; }
  // Of a trap: no page is free for what comes next.
  bool starved() const { return scatter != nullptr && scatter->starved(); }

  // Into the stage, and left in the socket until it is let go; as ::recv.
  ssize_t peek(int fd);
  // False with errno set where the socket has ended.
  bool let_go(int fd);

  Request* request = nullptr;   // the message of the current piece; none between two pieces
  uint64_t sequence = 0;        // of that message
  uint8_t* cursor = nullptr;    // where its next byte belongs, unless it goes to bounce pages
  Scatter* scatter = nullptr;   // where to, if it does
  bool placed = false;          // it is put at `cursor` by way of a buffer
  uint64_t left = 0;            // bytes of the piece that are still to come
  bool lent = false;            // the sender waits to be told that they are read
  uint32_t begin = 0, end = 0;  // bytes of the stage that are not used yet
  uint32_t peeked = 0;          // bytes that were staged and that the kernel still holds
  int visits_left = 0;          // before it is told to let go of them
  bool waited = false;          // the last read found nothing
  bool expects_large = false;   // the last piece was larger than a stage
  bool roomy = false;           // bytes may be held: the sender has room beside them
  std::array<uint8_t, kStageBytes> stage;
};

}  // namespace softtcpx
