#include "baselines/raw_links.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "engine/clock.h"
#include "engine/connections.h"
#include "engine/signals.h"

namespace tcpx {
namespace {

constexpr int kBacklog = 4096;

// What a connecting rank says first: the listener's token, then who it is.
struct Hello {
  std::array<uint8_t, 16> token;
  int32_t rank;
  int32_t lane;
  int32_t stream;
  int32_t zero;
};
static_assert(sizeof(Hello) == 32, "the form on the wire");

// What listen() returns: an address and the token.
struct Address {
  sockaddr_storage socket;
  socklen_t length;
  std::array<uint8_t, 16> token;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("raw peer: " + what + ": " + std::strerror(errno));
}

bool set_int(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// The interface's IPv4 address, else an IPv6 one that is valid beyond the link, else any.
bool address_of(const std::string& interface, sockaddr_storage* out, socklen_t* length) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  int best = 0;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || interface != entry->ifa_name) continue;
    const int family = entry->ifa_addr->sa_family;
    int rank = 0;
    socklen_t size = 0;
    if (family == AF_INET) {
      rank = 3;
      size = sizeof(sockaddr_in);
    } else if (family == AF_INET6) {
      const auto* six = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      rank = IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr) ? 1 : 2;
      size = sizeof(sockaddr_in6);
    }
    if (rank > best) {
      best = rank;
      *length = size;
      *out = {};
      std::memcpy(out, entry->ifa_addr, size);
    }
  }
  freeifaddrs(list);
  return best > 0;
}

}  // namespace

RawLinks::RawLinks(const RawSettings& settings) : settings_(settings) {}

RawLinks::~RawLinks() {
  for (const Stream& tcp : streams_) {
    if (tcp.fd >= 0) close(tcp.fd);
  }
  for (const Guest& guest : guests_) close(guest.fd);
  if (listener_ >= 0) close(listener_);
}

void RawLinks::tune(int fd) const {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const std::string& name = settings_.congestion;
  if (!name.empty() &&
      setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), name.size()) != 0) {
    fail("the kernel refuses congestion control " + name);
  }
  if (settings_.send_buffer_bytes > 0 &&
      !set_int(fd, SOL_SOCKET, SO_SNDBUFFORCE, settings_.send_buffer_bytes)) {
    set_int(fd, SOL_SOCKET, SO_SNDBUF, settings_.send_buffer_bytes);
  }
}

std::string RawLinks::listen() {
  Address address{};
  if (!address_of(settings_.interface, &address.socket, &address.length)) {
    throw std::runtime_error("raw peer: network interface " + settings_.interface +
                             " has no IP address to listen on");
  }
  if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size())) {
    fail("getrandom");
  }
  listener_ = socket(address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail("socket");
  tune(listener_);  // accepted sockets inherit
  own_ = address.socket;
  auto* any = reinterpret_cast<sockaddr*>(&address.socket);
  if (bind(listener_, any, address.length) != 0) fail("bind to " + settings_.interface);
  if (::listen(listener_, kBacklog) != 0) fail("listen");
  if (getsockname(listener_, any, &address.length) != 0) fail("getsockname");
  address.token = token_;
  return std::string(reinterpret_cast<const char*>(&address), sizeof(address));
}

void RawLinks::plan(int rank, const std::vector<Neighbour>& sends,
                    const std::vector<Neighbour>& receives) {
  const auto add = [this](const Neighbour& neighbour, bool outgoing) {
    if (find(neighbour.peer, neighbour.lane, 0, outgoing) >= 0) return;
    for (int stream = 0; stream < settings_.streams; ++stream) {
      streams_.push_back({neighbour.peer, neighbour.lane, stream, outgoing});
    }
  };
  for (const Neighbour& neighbour : sends)
    add(neighbour, !settings_.two_way || rank < neighbour.peer);
  for (const Neighbour& neighbour : receives)
    add(neighbour, settings_.two_way && rank < neighbour.peer);
}

void RawLinks::establish(int rank, const std::vector<std::string>& addresses,
                         const std::vector<Neighbour>& sends,
                         const std::vector<Neighbour>& receives, double timeout_s) {
  plan(rank, sends, receives);
  const int64_t deadline = now_ns() + static_cast<int64_t>(timeout_s * 1e9);
  while (true) {
    bool moved = false;
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
      guests_.push_back({fd});
      moved = true;
    }
    const int refused = errno == EAGAIN ? 0 : errno;
    for (Stream& tcp : streams_) {
      if (tcp.outgoing && tcp.greeted < sizeof(Hello)) moved |= advance(tcp, rank, addresses);
    }
    for (size_t i = 0; i < guests_.size();) {
      if (admit(guests_[i])) {
        guests_.erase(guests_.begin() + static_cast<ptrdiff_t>(i));
        moved = true;
      } else {
        ++i;
      }
    }
    const auto pending = std::count_if(streams_.begin(), streams_.end(), [](const Stream& tcp) {
      return tcp.outgoing ? tcp.greeted < sizeof(Hello) : tcp.fd < 0;
    });
    if (pending == 0) break;
    if (stop_signal() != 0) throw Interrupt(stop_signal());
    if (now_ns() > deadline) {
      throw std::runtime_error("raw peer: " + std::to_string(pending) + " of " +
                               std::to_string(streams_.size()) + " connections did not come up" +
                               (refused != 0 ? std::string(": accept: ") + strerror(refused) : ""));
    }
    if (!moved) {
      // What cannot be accepted, for want of files, would end the wait at once.
      pollfd wait{refused == 0 ? listener_ : -1, POLLIN, 0};
      poll(&wait, 1, 1);
    }
  }
  for (const Guest& guest : guests_) close(guest.fd);  // strangers
  guests_.clear();
  close(listener_);
  listener_ = -1;
}

// One step of a connect and its hello; true if something happened.
bool RawLinks::advance(Stream& tcp, int rank, const std::vector<std::string>& addresses) {
  Address address;
  const std::string& text = addresses.at(static_cast<size_t>(tcp.peer));
  if (text.size() != sizeof(address)) {
    throw std::runtime_error("raw peer: rank " + std::to_string(tcp.peer) + " has no address");
  }
  std::memcpy(&address, text.data(), sizeof(address));
  const auto name = [&] { return "connect to rank " + std::to_string(tcp.peer); };
  if (tcp.fd < 0) {
    tcp.fd = socket(address.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (tcp.fd < 0) fail("socket");
    tune(tcp.fd);
    // From the address of our own interface, so that its NIC carries the traffic, as a plugin's.
    const auto* from = reinterpret_cast<const sockaddr*>(&own_);
    set_int(tcp.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (own_.ss_family == address.socket.ss_family && bind(tcp.fd, from, address.length) != 0) {
      fail("bind to " + settings_.interface);
    }
    const auto* to = reinterpret_cast<const sockaddr*>(&address.socket);
    if (connect(tcp.fd, to, address.length) != 0 && errno != EINPROGRESS) fail(name());
    return true;
  }
  const Hello hello{address.token, rank, tcp.lane, tcp.stream, 0};
  const ssize_t n = send(tcp.fd, reinterpret_cast<const uint8_t*>(&hello) + tcp.greeted,
                         sizeof(hello) - tcp.greeted, MSG_NOSIGNAL);
  if (n > 0) {
    tcp.greeted += static_cast<size_t>(n);
    return true;
  }
  if (errno != EAGAIN && errno != ENOTCONN && errno != EINTR) fail(name());
  return false;
}

// True when a guest is done with: it has become a stream, or was no guest of ours.
bool RawLinks::admit(Guest& guest) {
  const ssize_t n =
      recv(guest.fd, guest.hello.data() + guest.received, sizeof(Hello) - guest.received, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n > 0 && (guest.received += static_cast<size_t>(n)) < sizeof(Hello)) return false;
  Hello hello{};
  std::memcpy(&hello, guest.hello.data(), sizeof(hello));
  const int at =
      n > 0 && hello.token == token_ ? find(hello.rank, hello.lane, hello.stream, false) : -1;
  if (at < 0 || streams_[static_cast<size_t>(at)].fd >= 0) {
    close(guest.fd);
  } else {
    streams_[static_cast<size_t>(at)].fd = guest.fd;
  }
  return true;
}

int RawLinks::find(int peer, int lane, int stream, bool outgoing) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& tcp = streams_[i];
    if (tcp.peer == peer && tcp.lane == lane && tcp.stream == stream && tcp.outgoing == outgoing) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int RawLinks::send_socket(int peer, int lane, int stream) const {
  int at = find(peer, lane, stream, true);
  if (at < 0 && settings_.two_way) at = find(peer, lane, stream, false);
  if (at < 0) throw std::invalid_argument("raw peer: no stream to rank " + std::to_string(peer));
  return streams_[static_cast<size_t>(at)].fd;
}

int RawLinks::receive_socket(int peer, int lane, int stream) const {
  int at = find(peer, lane, stream, false);
  if (at < 0 && settings_.two_way) at = find(peer, lane, stream, true);
  if (at < 0) throw std::invalid_argument("raw peer: no stream from rank " + std::to_string(peer));
  return streams_[static_cast<size_t>(at)].fd;
}

std::vector<int> RawLinks::sockets() const {
  std::vector<int> all;
  for (const Stream& tcp : streams_) all.push_back(tcp.fd);
  return all;
}

}  // namespace tcpx
