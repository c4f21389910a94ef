#include "tap/inner.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>
#include <vector>

#include "net/abi.h"

namespace tap {
namespace {

constexpr int kOldest = 6, kNewest = 12;
constexpr char kFile[] = "libnccl-net-tap";

std::string file_of(int abi) {
  return kFile + (abi == 7 ? "" : "-v" + std::to_string(abi)) + ".so";
}

std::string folder_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

std::string mapped_path(void* library, const std::string& asked) {
  link_map* map = nullptr;
  char real[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map->l_name[0] == '\0') return asked;
  return realpath(map->l_name, real) != nullptr ? real : map->l_name;
}

}  // namespace

Inner::Inner(int abi, const void* own) {
  const char* value = getenv("TCPX_TAP_PLUGIN");
  if (value == nullptr || value[0] == '\0') {
    refuse(kNetInvalidUsage,
           "TCPX_TAP_PLUGIN is not set: set it to the path or the name of the plugin to use");
    return;
  }
  const std::string asked = value;
  std::vector<std::string> places{asked};
  if (asked.find('/') == std::string::npos) {  // a name: what lies beside the tap is found, too
    places.push_back("libnccl-net-" + asked + ".so");
    places.push_back(folder_of(own) + places.back());
  }
  std::string why;
  for (const std::string& place : places) {
    library_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
    const char* said = dlerror();
    // Of the file that is there but cannot be loaded; else of the first that was looked for.
    const std::string text = said != nullptr ? said : "?";
    if (why.empty() || text.find("No such file") == std::string::npos) why = text;
  }
  if (library_ == nullptr) {
    refuse(kNetSystemError, "TCPX_TAP_PLUGIN (" + asked + ") cannot be loaded: " + why);
    return;
  }
  path_ = mapped_path(library_, asked);
  const auto table_of = [&](int version) {
    return dlsym(library_, ("ncclNetPlugin_v" + std::to_string(version)).c_str());
  };
  table_ = table_of(abi);
  const std::string file = path_.substr(path_.rfind('/') + 1);
  if (table_ == own || file.compare(0, sizeof kFile - 1, kFile) == 0) {
    refuse(kNetInvalidUsage, path_ + " is a tap itself: set TCPX_TAP_PLUGIN to a plugin");
    return;
  }
  if (table_ != nullptr) return;
  // A caller takes the newest table of a file, so each version of the tap is a file of its own.
  for (int version = kNewest; version >= kOldest; --version) {
    if (table_of(version) == nullptr) continue;
    refuse(kNetInvalidUsage, path_ + " offers v" + std::to_string(version) + ", this tap v" +
                                 std::to_string(abi) + ": use " + folder_of(own) +
                                 file_of(version));
    return;
  }
  refuse(kNetInvalidUsage, path_ + " is no NCCL network plugin of v6 to v12");
}

void Inner::unload() {
  if (library_ != nullptr) dlclose(library_);
  library_ = table_ = nullptr;
}

void Inner::refuse(int code, const std::string& why) {
  table_ = nullptr;
  code_ = code;
  refusal_ = why;
}

}  // namespace tap
