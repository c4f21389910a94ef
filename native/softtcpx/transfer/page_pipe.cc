#include "softtcpx/transfer/page_pipe.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace softtcpx {
namespace {

// 64 pages: with 32 a socket was a twentieth slower than with 256, and all pipes of a user without
// privileges have 16384 together.
constexpr int kPipeBytes = 1 << 18;
// As large as pipes are where nothing is asked for. A user who has too many gets some of two pages.
constexpr int kLeastPipeBytes = 1 << 16;

}  // namespace

bool PagePipe::open(const uint8_t* page) {
  int ends[2];
  if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return false;
  out_ = Fd(ends[0]);
  in_ = Fd(ends[1]);
  const bool roomy = ::fcntl(in_.get(), F_SETPIPE_SZ, kPipeBytes) >= kPipeBytes ||
                     ::fcntl(in_.get(), F_GETPIPE_SZ) >= kLeastPipeBytes;
  uint8_t byte = 0;
  if (roomy && put(page, sizeof byte) && ::read(out_.get(), &byte, sizeof byte) == sizeof byte) {
    held_ = 0;
    return true;
  }
  const int why = errno;
  in_.reset();
  out_.reset();
  errno = why;
  return false;
}

bool PagePipe::put(const uint8_t* data, uint64_t length) {
  iovec pages{const_cast<uint8_t*>(data), length};
  const ssize_t taken = ::vmsplice(in_.get(), &pages, 1, SPLICE_F_NONBLOCK);
  if (taken > 0) held_ = static_cast<uint64_t>(taken);
  return taken > 0;
}

ssize_t PagePipe::send(int socket, const uint8_t* data, uint64_t length) {
  uint64_t sent = 0;
  while (sent < length) {
    ssize_t moved = 0;
    if (held_ > 0 || put(data + sent, length - sent)) {
      // A hint on the last part would hold its end back until more comes.
      const unsigned more = held_ < length - sent ? SPLICE_F_MORE : 0;
      moved = ::splice(out_.get(), nullptr, socket, nullptr, held_, SPLICE_F_NONBLOCK | more);
      if (moved > 0) held_ -= static_cast<uint64_t>(moved);
    } else {  // no memory for it just now
      moved = ::send(socket, data + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (moved <= 0) break;
    sent += static_cast<uint64_t>(moved);
  }
  return sent > 0 ? static_cast<ssize_t>(sent) : -1;
}

}  // namespace softtcpx
