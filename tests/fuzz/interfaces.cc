// The choice of interfaces: lists that a user writes, against a second way to read them.
//
// Input: lines of text. The first is the list, each other one the name of an interface; one that
// begins with '*' is a loopback.
#include "softtcpx/environment/interfaces.h"

#include <sstream>
#include <string>
#include <vector>

#include "fuzz/input.h"

namespace {

using softtcpx::Interface;

// From left to right, a character at a time.
bool matches(std::string spec, const std::string& name) {
  bool negated = false, exact = false, listed = false;
  if (!spec.empty() && spec.front() == '^') negated = true, spec.erase(0, 1);
  if (!spec.empty() && spec.front() == '=') exact = true, spec.erase(0, 1);
  std::string part;
  for (const char letter : spec + ",") {
    if (letter != ',') {
      part += letter;
      continue;
    }
    if (!part.empty() && (exact ? name == part : name.rfind(part, 0) == 0)) listed = true;
    part.clear();
  }
  return listed != negated;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  std::string spec, name;
  std::getline(text, spec);
  std::vector<Interface> found;
  while (std::getline(text, name)) {
    Interface interface;
    interface.loopback = name.rfind('*', 0) == 0;
    interface.name = interface.loopback ? name.substr(1) : name;
    REQUIRE(softtcpx::name_matches(spec, interface.name) == matches(spec, interface.name));
    found.push_back(interface);
  }

  const bool all = spec.empty() || spec.front() == '^';  // loopback is not asked for by name
  size_t others = 0, loopbacks = 0;
  for (const Interface& interface : found) {
    const bool wanted = spec.empty() || matches(spec, interface.name);
    // Those of containers are told apart by their names alone.
    if (spec.empty() && matches("docker,virbr,veth,br-,cni,flannel,podman", interface.name))
      continue;
    if (wanted) ++(interface.loopback ? loopbacks : others);
  }
  const std::vector<Interface> chosen = softtcpx::choose_interfaces(spec, found);
  REQUIRE(chosen.size() == (all && others > 0 ? others : others + loopbacks));
  for (size_t i = 0; i < chosen.size(); ++i) {
    REQUIRE(spec.empty() || matches(spec, chosen[i].name));
    REQUIRE(i == 0 || chosen[i - 1].name <= chosen[i].name);
  }
  return 0;
}
