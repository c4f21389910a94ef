// Where other agents connect to, and how they may reach this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nixl/stream.h"

namespace tcpx::nixl {

class Listener {
 public:
  // On `address` ("": every one) and `port` (0: any). Throws std::runtime_error.
  Listener(const std::string& address, uint16_t port);
  uint16_t port() const { return port_; }
  int fd() const { return socket_.fd(); }
  // A connection that waits, or one without a descriptor.
  Socket accept();

 private:
  Socket socket_;
  Socket spare_;  // given up when no descriptor is left
  uint16_t port_ = 0;
};

// Numeric addresses of interfaces that are up, loopback last; of these interfaces only, where any
// is named ("eth0,eth1").
std::vector<std::string> local_addresses(const std::string& interfaces);

// Equal for processes that share a loopback interface: this boot of this machine and the network
// namespace.
std::string machine_identity();

}  // namespace tcpx::nixl
