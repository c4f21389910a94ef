#include "softtcpx/transfer/receive_notices.h"

#include <sys/socket.h>

#include <cstring>

namespace softtcpx {

// What the sender is to be told of next; false if it knows all.
bool ReceiveNotices::next(uint64_t posted) {
  if (credited_ != posted) {
    credited_ = posted;
    const Credit credit = make_credit(posted);
    std::memcpy(notice_, &credit, sizeof notice_);
    return true;
  }
  for (size_t i = 0; i < sockets_; ++i) {
    Lent& lent = lent_[i];
    if (lent.returned == lent.read) continue;
    lent.returned = lent.read;
    const Return said = make_return(static_cast<uint32_t>(i), lent.read);
    std::memcpy(notice_, &said, sizeof notice_);
    return true;
  }
  return false;
}

void ReceiveNotices::send(int control, uint64_t posted) {
  while (left_ > 0 || next(posted)) {
    if (left_ == 0) left_ = sizeof notice_;
    const ssize_t sent =
        ::send(control, notice_ + sizeof notice_ - left_, left_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) left_ -= static_cast<uint32_t>(sent);
    if (left_ > 0) return;
  }
}

}  // namespace softtcpx
