// The TCP sockets that a plugin opened in this process, seen from outside through TCP_INFO.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tcpx {

// Inodes of all connected TCP sockets of this process.
std::set<uint64_t> tcp_socket_inodes();

struct SocketTotals {
  uint64_t sent = 0;      // bytes, retransmissions included
  uint64_t received = 0;  // bytes
  uint64_t retransmits = 0;
  uint32_t rtt_us = 0;  // the longest smoothed round trip
  int sockets = 0;      // that could be read
};

class TcpSockets {
 public:
  TcpSockets() = default;
  explicit TcpSockets(std::vector<int> descriptors) : descriptors_(std::move(descriptors)) {}

  // Those that were not there at `before`.
  static TcpSockets opened_since(const std::set<uint64_t>& before);

  SocketTotals totals() const;
  std::string congestion_control() const;  // of all, "cubic" or "bbr,cubic"; empty: none known
  std::string interfaces() const;          // whose addresses they have, likewise
  bool set_congestion_control(const std::string& name) const;  // false where one is refused
  int count() const { return static_cast<int>(descriptors_.size()); }

 private:
  std::vector<int> descriptors_;
};

}  // namespace tcpx
