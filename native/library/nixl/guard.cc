#include "library/nixl/guard.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

namespace tcpx::nixl {
namespace {

// A method of the agent that 1.0 and later have, and none before it.
constexpr char kOnlyInThisLayout[] = "_ZNK9nixlAgent14releaseMemViewEPv";

struct Search {
  std::string found;  // a library of NIXL's agent
  bool has_symbol = false;
};

// Wheels put a hash into the name: libnixl-1a2b3c4d.so.
bool is_agent_library(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  if (strncmp(name, "libnixl", 7) != 0) return false;
  return name[7] == '.' || name[7] == '-';
}

int look_at(dl_phdr_info* object, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  if (object->dlpi_name == nullptr || !is_agent_library(object->dlpi_name)) return 0;
  search.found = object->dlpi_name;
  void* library = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  search.has_symbol = dlsym(library, kOnlyInThisLayout) != nullptr;
  dlclose(library);
  return search.has_symbol ? 1 : 0;
}

}  // namespace

std::string why_not_this_nixl() {
  Search search;
  dl_iterate_phdr(look_at, &search);
  if (search.has_symbol) return "";
  if (search.found.empty()) {
    return "no libnixl.so is among the loaded objects: this plugin is loaded by NIXL 1.0 to 1.5";
  }
  return search.found + " has no " + kOnlyInThisLayout +
         ": it is older than NIXL 1.0, whose tables differ; install nixl 1.0 to 1.5";
}

}  // namespace tcpx::nixl
