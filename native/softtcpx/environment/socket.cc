#include "softtcpx/environment/socket.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

namespace softtcpx {
namespace {

void set_buffer(int fd, int option, int64_t bytes) {
  const int value = static_cast<int>(bytes);
  if (bytes > 0) ::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value);
}

}  // namespace

Fd open_stream_socket() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (fd.valid()) ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

bool lacks_files(int error_number) { return error_number == EMFILE || error_number == ENFILE; }

Heard hear(int fd, uint8_t* message, uint32_t size, uint32_t* have) {
  const ssize_t got = ::recv(fd, message + *have, size - *have, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kPart;
  if (got == 0) errno = 0;
  if (got <= 0) return Heard::kEnded;
  *have += static_cast<uint32_t>(got);
  return *have == size ? Heard::kAll : Heard::kPart;
}

bool say(int fd, const void* message, size_t size) {
  return ::send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool set_congestion(int fd, const std::string& name) {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string congestion_of(int fd) {
  char name[64] = {};
  socklen_t length = sizeof name - 1;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0) return "unknown";
  return name;
}

void apply_options(int fd, const std::string& congestion, int64_t send_bytes,
                   int64_t receive_bytes) {
  if (!congestion.empty()) set_congestion(fd, congestion);
  set_buffer(fd, SO_SNDBUF, send_bytes);
  set_buffer(fd, SO_RCVBUF, receive_bytes);
}

std::string address_text(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "?";
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
}

}  // namespace softtcpx
