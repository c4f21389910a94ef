// Where other agents connect to, and how they may reach this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "library/nixl/stream.h"

namespace tcpx::nixl {

class Listener {
 public:
  // On `address` ("": every one) and `port` (0: any). Throws std::runtime_error.
  Listener(const std::string& address, uint16_t port);
  uint16_t port() const { return port_; }
  int fd() const { return socket_.fd(); }
  // A connection that waits, or one without a descriptor; then `lacks_files` says whether that is
  // because this process may have no more.
  Socket accept(bool* lacks_files);
  // Sends away whoever waits, without a descriptor to spare.
  void turn_away();

 private:
  Socket socket_;
  Socket spare_;  // given up by turn_away
  uint16_t port_ = 0;
};

// "192.0.2.7 port 4711" of whom a connected socket is connected to.
std::string peer_address(int fd);

// Numeric addresses of interfaces that are up, loopback last; of these interfaces only, where any
// is named ("eth0,eth1").
std::vector<std::string> local_addresses(const std::string& interfaces);

// Equal for processes that share a loopback interface: this boot of this machine and the network
// namespace.
std::string machine_identity();

}  // namespace tcpx::nixl
