// Pieces that one socket sends from where they lie, and which of them the receiver has read: until
// it says so their memory is not to be written.
#pragma once

#include <array>

#include "softtcpx/gpu/copy_ring.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/page_pipe.h"
#include "softtcpx/transfer/requests.h"

namespace softtcpx {

class Lender {
 public:
  // False with errno set where the kernel does not lend pages of this ring.
  bool open(const CopyRing& ring) { return pipe_.open(ring.first_page()); }
  bool is_open() const { return pipe_.is_open(); }

  // One piece after the other, each behind a header that says it is lent.
  void begin(Request& request, CopyRing::Piece& piece);
  bool empty() const { return left_ == 0; }
  // As ::send, of what is left of the piece.
  ssize_t send(int socket);

  // How many pieces the peer has read since; 0 where it cannot have read what it says.
  uint64_t take_back(const Notice& notice, CopyRing& ring);

 private:
  PagePipe pipe_;
  uint64_t left_ = 0;  // of the newest piece
  Request* request_ = nullptr;
  // By number: the ring has no more pieces than this has places.
  std::array<CopyRing::Piece*, CopyRing::kPieces> pieces_;
  uint64_t begun_ = 0, returned_ = 0;
};

}  // namespace softtcpx
