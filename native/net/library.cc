#include "net/library.h"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <set>

#include "net/exit_guard.h"
#include "net/logger.h"

namespace tcpx {
namespace {

// NCCL's own range; the versions that we can drive are those with an adapter below.
constexpr int kNewestProbed = 12;
constexpr int kOldestProbed = 4;

std::string mapped_path(void* library, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0') {
    char real[PATH_MAX];
    return realpath(map->l_name, real) != nullptr ? real : map->l_name;
  }
  return asked;
}

std::string list_of(const std::vector<int>& versions) {
  std::string text;
  for (int v : versions) text += (text.empty() ? "v" : ", v") + std::to_string(v);
  return text;
}

std::mutex g_init_mutex;
std::set<std::string> g_init_tried;  // by mapped path: init is once a process, also after a failure

}  // namespace

PluginError::PluginError(const std::string& call, int code, const std::string& what)
    : std::runtime_error("plugin call " + call + " returned " + std::to_string(code) + " (" +
                         result_name(code) + ")" + (what.empty() ? "" : ": " + what)),
      code_(code) {}

Plugin::Plugin(const std::string& path) {
  // A plugin writes to sockets without MSG_NOSIGNAL: a dead peer must be a code, not our death.
  signal(SIGPIPE, SIG_IGN);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw LibraryError("cannot load plugin " + path + ": " + (reason != nullptr ? reason : "?"));
  }
  path_ = mapped_path(library, path);
  for (int version = kNewestProbed; version >= kOldestProbed; --version) {
    const std::string symbol = "ncclNetPlugin_v" + std::to_string(version);
    void* table = dlsym(library, symbol.c_str());
    if (table == nullptr) continue;
    abi_versions_.push_back(version);
    if (version == 7) net_ = make_net_v7(table);
    exit_guard::watch(table, path_);
  }
  if (abi_versions_.empty()) {
    throw LibraryError(path_ + " is no NCCL network plugin: it exports no ncclNetPlugin_vN");
  }
  if (net_ == nullptr) {
    throw LibraryError(path_ + " offers ABI " + list_of(abi_versions_) +
                       ", supported is v7: use a build of the plugin that exports "
                       "ncclNetPlugin_v7");
  }
}

void Plugin::init() {
  {
    const std::lock_guard<std::mutex> lock(g_init_mutex);
    if (!g_init_tried.insert(path_).second) {
      throw PluginError("init", kNetInternalError,
                        "a plugin can be initialised once a process, also after a failure");
    }
  }
  const int code = net_->init(plugin_log::function());
  if (code != kNetSuccess) {
    const std::string said = plugin_log::quote_call();
    throw PluginError("init", code, said.empty() ? "" : said.substr(2));
  }
  initialised_ = true;
}

}  // namespace tcpx
