#include "softtcpx/transfer/socket_reader.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace softtcpx {

void SocketReader::compact() {
  if (staged() > 0) std::memmove(&stage[0], &stage[begin], staged());
  end = staged();
  begin = 0;
}

// The kernel acknowledges bytes when they are taken out of the socket. If data flows one way only,
// that is a packet of its own: a third of the round trip of 8 bytes, before the caller knows of
// them. So who has waited for a message looks at it first, and takes it out when there was time for
// an answer. Held bytes narrow the window of the sender: only whole messages are held, and only if
// there is room for more. The socket is tried again without an announcement, which may never come.
ssize_t SocketReader::peek(int fd) {
  const iovec rest = rest_of_stage();
  const ssize_t got = ::recv(fd, rest.iov_base, rest.iov_len, MSG_DONTWAIT | MSG_PEEK);
  if (got > 0) peeked = static_cast<uint32_t>(got);
  return got;
}

bool SocketReader::let_go(int fd) {
  while (peeked > 0) {
    // MSG_TRUNC spares the copy on TCP; other sockets write what is there already.
    const ssize_t gone = ::recv(fd, &stage[end - peeked], peeked, MSG_DONTWAIT | MSG_TRUNC);
    if (gone < 0 && errno == EINTR) continue;
    if (gone <= 0) {
      peeked = 0;  // and there is nothing to be let go of any more
      return false;
    }
    peeked -= static_cast<uint32_t>(gone);
  }
  return true;
}

}  // namespace softtcpx
