#include "engine/tcp_info.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace tcpx {
namespace {

int int_option(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  return getsockopt(fd, level, option, &value, &length) == 0 ? value : -1;
}

bool is_connected_tcp(int fd) {
  const int domain = int_option(fd, SOL_SOCKET, SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) &&
         int_option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM &&
         int_option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0;
}

std::map<uint64_t, int> connected_tcp() {
  std::map<uint64_t, int> by_inode;
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return by_inode;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = atoi(entry->d_name);
    struct stat status;  // of no file: its disk may hang
    if (is_connected_tcp(fd) && fstat(fd, &status) == 0) {
      by_inode[status.st_ino] = fd;
    }
  }
  closedir(directory);
  return by_inode;
}

// An address without its port, comparable; empty for other families.
std::string host_of(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const char*>(&four->sin_addr), sizeof(four->sin_addr)};
  }
  if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    const auto* bytes = reinterpret_cast<const char*>(&six->sin6_addr);
    // An IPv4 connection of an IPv6 socket has its four bytes at the end.
    const size_t skipped = IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) ? 12 : 0;
    return {bytes + skipped, sizeof(six->sin6_addr) - skipped};
  }
  return {};
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

std::set<uint64_t> tcp_socket_inodes() {
  std::set<uint64_t> inodes;
  for (const auto& [inode, fd] : connected_tcp()) inodes.insert(inode);
  return inodes;
}

TcpSockets TcpSockets::opened_since(const std::set<uint64_t>& before) {
  TcpSockets sockets;
  for (const auto& [inode, fd] : connected_tcp()) {
    if (before.count(inode) == 0) sockets.descriptors_.push_back(fd);
  }
  return sockets;
}

SocketTotals TcpSockets::totals() const {
  SocketTotals totals;
  for (const int fd : descriptors_) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    totals.sent += info.tcpi_bytes_sent;
    totals.received += info.tcpi_bytes_received;
    totals.retransmits += info.tcpi_total_retrans;
    totals.rtt_us = std::max(totals.rtt_us, info.tcpi_rtt);
    ++totals.sockets;
  }
  return totals;
}

bool TcpSockets::set_congestion_control(const std::string& name) const {
  bool all = true;
  for (const int fd : descriptors_) {
    all &= setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), name.size()) == 0;
  }
  return all;
}

std::string TcpSockets::congestion_control() const {
  std::set<std::string> names;
  for (const int fd : descriptors_) {
    char name[16] = {};
    socklen_t length = sizeof(name) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0) names.insert(name);
  }
  return joined(names);
}

std::string TcpSockets::interfaces() const {
  std::set<std::string> hosts;
  for (const int fd : descriptors_) {
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (getsockname(fd, address, &length) == 0) hosts.insert(host_of(address));
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::set<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string host = host_of(entry->ifa_addr);
    if (!host.empty() && hosts.count(host) != 0) names.insert(entry->ifa_name);
  }
  freeifaddrs(list);
  return joined(names);
}

}  // namespace tcpx
