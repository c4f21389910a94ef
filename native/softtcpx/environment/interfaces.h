// Which network interfaces of this host we offer as devices.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <string>
#include <vector>

namespace softtcpx {

struct Interface {
  std::string name;
  std::string pci_path;  // empty: a virtual interface
  sockaddr_in address{};
  int speed_mbps = 0;
  bool loopback = false;
};

// Pure: does `name` belong to the list `spec`? "eth,ib" prefixes, "=eth0,eth1" exact names,
// "^docker" and "^=eth0" all others. A prefix of fewer letters than `shortest` matches nothing.
bool name_matches(const std::string& spec, const std::string& name, size_t shortest = 1);

// Pure: the interfaces to offer, sorted by name. An empty `spec` means all but the bridges of
// containers and virtual machines. Loopback is offered when it is asked for by name, or when
// nothing else is there.
std::vector<Interface> choose_interfaces(const std::string& spec, std::vector<Interface> found,
                                         size_t shortest = 1);

// IPv4 interfaces that are up, with what sysfs knows about them. Throws std::system_error.
std::vector<Interface> find_interfaces();

}  // namespace softtcpx
