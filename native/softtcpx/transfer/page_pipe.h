// The way of bytes into a socket without a copy: a pipe that takes pages by reference, and gives
// them to the socket, which sends them from where they lie.
//
// The kernel looks at them for as long as it likes: over loopback until the receiver has read them,
// which may be long after they are acknowledged. Only the receiver can say when they may change.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "softtcpx/environment/socket.h"

namespace softtcpx {

class PagePipe {
 public:
  // Tries it with a page of the memory that is to be sent. False with errno set where the kernel
  // does not lend pages of that.
  bool open(const uint8_t* page);
  bool is_open() const { return in_.valid(); }

  // Sends of these bytes as many as the socket takes, as ::send does: -1 and errno where it takes
  // none. Whatever was not sent comes first in the next call. For a thread with SIGPIPE blocked:
  // splice has no flag against it.
  ssize_t send(int socket, const uint8_t* data, uint64_t length);

 private:
  bool put(const uint8_t* data, uint64_t length);

  Fd in_, out_;
  uint64_t held_ = 0;  // bytes that are in the pipe
};

}  // namespace softtcpx
