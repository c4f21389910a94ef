#include "softtcpx/transfer/lender.h"

namespace softtcpx {

void Lender::begin(Request& request, CopyRing::Piece& piece) {
  request_ = &request;
  left_ = piece.length;
  pieces_[begun_++ % pieces_.size()] = &piece;
}

ssize_t Lender::send(int socket) {
  const CopyRing::Piece& piece = *pieces_[(begun_ - 1) % pieces_.size()];
  const ssize_t sent = pipe_.send(socket, piece.data + piece.length - left_, left_);
  if (sent <= 0) return sent;
  left_ -= static_cast<uint64_t>(sent);
  if (left_ == 0) request_->left -= piece.length;
  return sent;
}

uint64_t Lender::take_back(const Notice& notice, CopyRing& ring) {
  const uint64_t sent = empty() ? begun_ : begun_ - 1;
  const uint64_t before = returned_;
  uint64_t read = 0;
  if (!judge_return(notice, before, sent, &read)) return 0;
  for (; returned_ < read; ++returned_) ring.release(*pieces_[returned_ % pieces_.size()]);
  return read - before;
}

}  // namespace softtcpx
