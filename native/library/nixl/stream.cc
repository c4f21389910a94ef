#include "library/nixl/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/clock.h"

namespace tcpx::nixl {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMostPerRead = 1 << 20;
constexpr std::chrono::milliseconds kLeastPatience{20'000};

// A peer whose machine is gone sends no end: the kernel finds out. Nor does one that reads nothing
// for that long, and it may: `patience` is how long.
void set_options(int fd, std::chrono::milliseconds patience) {
  const int one = 1;
  const int idle_s = 5, interval_s = 5, probes = 3;
  const unsigned unacknowledged_ms =
      static_cast<unsigned>(std::max(patience, kLeastPatience).count());
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
}

std::string text_of(int error) { return strerror(error); }

}  // namespace

Socket& Socket::operator=(Socket&& from) noexcept {
  if (this != &from) {
    reset(from.fd_);
    from.fd_ = -1;
  }
  return *this;
}

void Socket::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Stream::Stream(Socket connected, std::chrono::milliseconds patience)
    : socket_(std::move(connected)), patience_(patience) {
  set_options(socket_.fd(), patience_);
}

bool Stream::dial(const std::string& address, uint16_t port, std::string* why) {
  sockaddr_storage to{};
  socklen_t length;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&to);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&to);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    length = sizeof(*v4);
  } else if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    length = sizeof(*v6);
  } else {
    *why = "no numeric address";
    return false;
  }
  socket_.reset(socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket_.fd() < 0) {
    *why = text_of(errno);
    return false;
  }
  set_options(socket_.fd(), patience_);
  if (::connect(socket_.fd(), reinterpret_cast<sockaddr*>(&to), length) != 0 &&
      errno != EINPROGRESS) {
    *why = text_of(errno);
    socket_.reset();
    return false;
  }
  return true;
}

DialStage Stream::dialed(std::string* why) {
  pollfd ready{socket_.fd(), POLLOUT, 0};
  if (poll(&ready, 1, 0) <= 0) return DialStage::kConnecting;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) return DialStage::kConnected;
  *why = text_of(error);
  socket_.reset();
  return DialStage::kFailed;
}

bool Stream::read(std::string* why) {
  for (size_t taken = 0; taken < kMostPerRead;) {
    char* room = reader_.room(kReadBytes);
    const ssize_t got = recv(socket_.fd(), room, kReadBytes, MSG_DONTWAIT);
    if (got == 0) {
      *why = "it closed the connection";
      return false;
    }
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return true;
      *why = text_of(errno);
      return false;
    }
    reader_.filled(got);
    taken += got;
    if (static_cast<size_t>(got) < kReadBytes) return true;
  }
  return true;
}

bool Stream::flush(std::string* why) {
  while (backlog() > 0) {
    const ssize_t sent =
        send(socket_.fd(), out_.data() + sent_, backlog(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) break;
      *why = text_of(errno);
      return false;
    }
    sent_ += sent;
  }
  // A peer that always leaves something unread must not make this grow for ever.
  if (sent_ > backlog()) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  return true;
}

void Stream::finish(int patience_ms) {
  if (socket_.fd() < 0) return;
  std::string why;
  const int64_t deadline = now_ns() + int64_t{patience_ms} * 1'000'000;
  while (flush(&why) && backlog() > 0) {
    const int64_t left_ms = (deadline - now_ns()) / 1'000'000;
    pollfd ready{socket_.fd(), POLLOUT, 0};
    if (left_ms <= 0 || poll(&ready, 1, static_cast<int>(left_ms)) <= 0) break;
  }
  shutdown(socket_.fd(), SHUT_WR);
  // What lies unread would make the kernel reset the connection, and drop what was sent last.
  char rest[4096];
  while (recv(socket_.fd(), rest, sizeof(rest), MSG_DONTWAIT) > 0) {
  }
  socket_.reset();
}

}  // namespace tcpx::nixl
