#include "library/nixl/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace tcpx::nixl {
namespace {

constexpr size_t kMostAddresses = 16;

[[noreturn]] void refuse(const std::string& address, uint16_t port) {
  const int error = errno;
  throw std::runtime_error("cannot listen on " + (address.empty() ? "any address" : address) +
                           ", port " + std::to_string(port) + ": " + strerror(error));
}

Socket open_socket(int family, const sockaddr* at, socklen_t length) {
  Socket opened(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (opened.fd() < 0) return opened;
  const int one = 1, zero = 0;
  setsockopt(opened.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (family == AF_INET6) {
    setsockopt(opened.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
  }
  if (bind(opened.fd(), at, length) != 0 || listen(opened.fd(), 128) != 0) {
    const int error = errno;
    opened.reset();
    errno = error;
  }
  return opened;
}

bool is_named(const std::string& interfaces, const std::string& name) {
  return interfaces.empty() || ("," + interfaces + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

Listener::Listener(const std::string& address, uint16_t port)
    : spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const bool is_v4 = !address.empty() && inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1;
  const bool is_v6 =
      !address.empty() && !is_v4 && inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1;
  if (!address.empty() && !is_v4 && !is_v6) {
    throw std::runtime_error("ip " + address + " is no numeric address: give one like 10.0.0.1");
  }
  if (!is_v4) {  // both families, where the machine has both
    socket_ = open_socket(AF_INET6, reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
  }
  if (socket_.fd() < 0 && !is_v6) {
    socket_ = open_socket(AF_INET, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  }
  if (socket_.fd() < 0) refuse(address, port);
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&bound), &length);
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

Socket Listener::accept(bool* lacks_files) {
  Socket accepted(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  *lacks_files = accepted.fd() < 0 && (errno == EMFILE || errno == ENFILE);
  return accepted;
}

void Listener::turn_away() {
  spare_.reset();
  Socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).reset();
  spare_.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

std::string peer_address(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 ||
      getnameinfo(reinterpret_cast<const sockaddr*>(&peer), length, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return std::string(host) + " port " + port;
}

std::vector<std::string> local_addresses(const std::string& interfaces) {
  std::vector<std::string> real, loopback;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
      if ((at->ifa_flags & IFF_UP) == 0 || !is_named(interfaces, at->ifa_name)) continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (family == AF_INET) {
        inet_ntop(family, &reinterpret_cast<sockaddr_in*>(at->ifa_addr)->sin_addr, text,
                  sizeof(text));
      } else {
        const in6_addr& v6 = reinterpret_cast<sockaddr_in6*>(at->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&v6)) continue;  // means nothing without an interface
        inet_ntop(family, &v6, text, sizeof(text));
      }
      ((at->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : real).emplace_back(text);
    }
  }
  freeifaddrs(all);
  real.insert(real.end(), loopback.begin(), loopback.end());
  if (real.size() > kMostAddresses) real.resize(kMostAddresses);
  return real;
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (boot.empty() || stat("/proc/self/ns/net", &space) != 0) return "";
  return boot + "/" + std::to_string(space.st_ino);
}

}  // namespace tcpx::nixl
