#include "softtcpx/listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softtcpx/device.h"
#include "softtcpx/log.h"

namespace softtcpx {
namespace {

// Bounds against a flood: beyond them the oldest gives way, and an honest peer tries again.
constexpr size_t kMaxStrangers = 64;
constexpr size_t kMaxGroups = 4;
constexpr int kStrangersACall = 32;
constexpr std::chrono::seconds kHelloDeadline{10};

}  // namespace

int Listener::open(ListenHandle* handle) {
  port_ = open_stream_socket();
  sockaddr_in address = device_.interface.address;
  socklen_t length = sizeof address;
  if (!port_.valid()) {
    SOFTTCPX_WARN("listen on %s: %s", device_.interface.name.c_str(), std::strerror(errno));
    return kNetSystemError;
  }
  apply_listener_options(port_.get(), device_.settings);
  if (::bind(port_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(port_.get(), SOMAXCONN) != 0 ||
      ::getsockname(port_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    SOFTTCPX_WARN("listen on %s: %s", device_.interface.name.c_str(), std::strerror(errno));
    return kNetSystemError;
  }
  handle_ = make_listen_handle();
  handle_.address = address.sin_addr.s_addr;
  handle_.port = address.sin_port;
  handle_.sockets = static_cast<uint8_t>(device_.settings.sockets);
  handle_.flags = device_.settings.recv_sync != 0 ? kRecvSync : 0;
  handle_.threads = static_cast<uint8_t>(device_.settings.threads);
  if (!random_token(&handle_.secret) || !random_token(&handle_.answer)) return kNetSystemError;
  *handle = handle_;
  return kNetSuccess;
}

int Listener::accept(std::unique_ptr<RecvComm>* comm) {
  if (!port_.valid()) return kNetInvalidUsage;
  const Clock::time_point now = Clock::now();
  if (const int code = take_strangers(now)) return code;
  hear_strangers(now);
  for (Group& group : groups_) {
    if (!group.whole()) continue;
    if (const int64_t late_ms = device_.settings.traps.accept_ms) {  // a trap
      if (group.whole_since == Clock::time_point{}) group.whole_since = now;
      if (now - group.whole_since < std::chrono::milliseconds(late_ms)) continue;
    }
    if (!answer(group)) continue;
    *comm = make_comm(group);
    close_all();
    return *comm != nullptr ? kNetSuccess : kNetSystemError;
  }
  return kNetSuccess;
}

int Listener::take_strangers(Clock::time_point now) {
  for (int i = 0; i < kStrangersACall; ++i) {
    Stranger stranger;
    socklen_t length = sizeof stranger.address;
    stranger.fd = Fd(::accept4(port_.get(), reinterpret_cast<sockaddr*>(&stranger.address), &length,
                               SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!stranger.fd.valid()) {
      const int error = errno;
      if (error != EMFILE && error != ENFILE && error != ENOMEM && error != ENOBUFS)
        return kNetSuccess;  // none left, or one that went away before it was taken
      if (make_room(now)) return kNetSuccess;
      SOFTTCPX_WARN("accept on %s: %s", device_.interface.name.c_str(), std::strerror(error));
      return kNetSystemError;
    }
    stranger.since = now;
    if (strangers_.size() == kMaxStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(stranger));
  }
  return kNetSuccess;
}

// A flood must not be what this process has no descriptors for: the oldest of those who have not
// said all by now gives way. False when there was none.
bool Listener::make_room(Clock::time_point now) {
  if (strangers_.empty()) return false;
  hear_strangers(now);
  if (!strangers_.empty()) strangers_.erase(strangers_.begin());
  return true;
}

void Listener::hear_strangers(Clock::time_point now) {
  for (Stranger& stranger : strangers_) {
    const ssize_t got = ::recv(stranger.fd.get(), stranger.bytes + stranger.have,
                               sizeof stranger.bytes - stranger.have, MSG_DONTWAIT);
    if (got > 0) {
      stranger.have += static_cast<uint32_t>(got);
      if (stranger.have == sizeof stranger.bytes) sort_in(stranger);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      stranger.fd.reset();
    }
    if (now - stranger.since > kHelloDeadline) stranger.fd.reset();
  }
  strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(),
                                  [](const Stranger& stranger) { return !stranger.fd.valid(); }),
                   strangers_.end());
}

// Gives the socket of a complete hello to its group, or closes it.
void Listener::sort_in(Stranger& stranger) {
  Fd fd = std::move(stranger.fd);
  Hello hello;
  const HelloVerdict verdict = judge_hello(stranger.bytes, handle_.secret, handle_.sockets, &hello);
  if (verdict != HelloVerdict::kWelcome) {
    SOFTTCPX_WARN("refused %s: %s", address_text(stranger.address).c_str(), verdict_text(verdict));
    return;
  }
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& other) {
    return same_token(other.connection, hello.connection);
  });
  if (group == groups_.end()) {
    if (groups_.size() == kMaxGroups) groups_.erase(groups_.begin());
    groups_.emplace_back();
    group = groups_.end() - 1;
    group->connection = hello.connection;
    group->data.resize(handle_.sockets);
    group->peer = stranger.address;
  }
  Fd& place = hello.kind == HelloKind::kControl ? group->control : group->data[hello.index];
  if (place.valid()) {
    SOFTTCPX_WARN("refused %s: a replayed handshake", address_text(stranger.address).c_str());
    return;
  }
  place = std::move(fd);
}

bool Listener::Group::whole() const {
  return control.valid() &&
         std::all_of(data.begin(), data.end(), [](const Fd& fd) { return fd.valid(); });
}

// False when the other side has given up meanwhile: its group can then not become a connection.
bool Listener::answer(const Group& group) {
  const Hello hello =
      make_hello(HelloKind::kAnswer, 0, handle_.sockets, group.connection, handle_.answer);
  return ::send(group.control.get(), &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof hello);
}

std::unique_ptr<RecvComm> Listener::make_comm(Group& group) {
  Sockets sockets;
  sockets.control = std::move(group.control);
  sockets.data = std::move(group.data);
  sockets.threads = handle_.threads;
  sockets.peer = group.peer;
  auto comm = std::make_unique<RecvComm>(device_, std::move(sockets));
  if (comm->open_bounce() && comm->start()) return comm;
  SOFTTCPX_WARN("accept on %s: %s", device_.interface.name.c_str(), std::strerror(errno));
  return nullptr;
}

void Listener::close_all() {
  strangers_.clear();
  groups_.clear();
  port_.reset();
}

}  // namespace softtcpx
