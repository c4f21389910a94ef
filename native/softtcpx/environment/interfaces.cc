#include "softtcpx/environment/interfaces.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace softtcpx {
namespace {

constexpr int kUnknownSpeedMbps = 10000;
constexpr const char* kNotByDefault = "^docker,virbr,veth,br-,cni,flannel,podman";

bool is_pci_address(const std::string& text) {  // dddd:bb:dd.f
  static constexpr char kForm[] = "xxxx:xx:xx.x";
  if (text.size() != sizeof kForm - 1) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (kForm[i] == 'x' ? !digit : text[i] != kForm[i]) return false;
  }
  return true;
}

// The PCI function of an interface; what lies below it (a virtio device) is no place on the bus.
std::string pci_path_of(const std::string& name) {
  char resolved[PATH_MAX];
  if (::realpath(("/sys/class/net/" + name + "/device").c_str(), resolved) == nullptr) return "";
  std::string path = resolved;
  while (!path.empty()) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) break;
    if (is_pci_address(path.substr(slash + 1))) return path;
    path.resize(slash);
  }
  return "";
}

int speed_of(const std::string& name) {
  std::FILE* file = std::fopen(("/sys/class/net/" + name + "/speed").c_str(), "re");
  if (file == nullptr) return kUnknownSpeedMbps;
  int speed = -1;
  const bool read = std::fscanf(file, "%d", &speed) == 1;
  std::fclose(file);
  return read && speed > 0 ? speed : kUnknownSpeedMbps;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

bool name_matches(const std::string& spec, const std::string& name, size_t shortest) {
  size_t begin = 0;
  const bool negated = begin < spec.size() && spec[begin] == '^';
  if (negated) ++begin;
  const bool exact = begin < spec.size() && spec[begin] == '=';
  if (exact) ++begin;
  bool listed = false;
  for (const std::string& part : split(spec.substr(begin)))
    listed |=
        exact ? name == part : part.size() >= shortest && name.compare(0, part.size(), part) == 0;
  return listed != negated;
}

std::vector<Interface> choose_interfaces(const std::string& spec, std::vector<Interface> found,
                                         size_t shortest) {
  const std::string wanted = spec.empty() ? kNotByDefault : spec;
  const bool named = wanted[0] != '^';
  std::vector<Interface> chosen, loopbacks;
  for (Interface& interface : found) {
    if (!name_matches(wanted, interface.name, shortest)) continue;
    (interface.loopback && !named ? loopbacks : chosen).push_back(std::move(interface));
  }
  if (chosen.empty()) chosen = std::move(loopbacks);
  std::sort(chosen.begin(), chosen.end(),
            [](const Interface& a, const Interface& b) { return a.name < b.name; });
  return chosen;
}

std::vector<Interface> find_interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw std::system_error(errno, std::generic_category(), "interfaces");
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_RUNNING) == 0) continue;
    const std::string name = entry->ifa_name;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Interface& other) { return other.name == name; });
    if (known) continue;  // a second address of one interface is no second device
    Interface interface;
    interface.name = name;
    interface.pci_path = pci_path_of(name);
    std::memcpy(&interface.address, entry->ifa_addr, sizeof interface.address);
    interface.address.sin_port = 0;
    interface.speed_mbps = speed_of(name);
    interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    found.push_back(std::move(interface));
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace softtcpx
