#include "net/library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "net/exit_guard.h"
#include "net/logger.h"
#include "net/plugin_call.h"

namespace tcpx {
namespace {

// Versions that there have been, and some to come, so that a refusal can name them.
constexpr int kNewestProbed = 19;
constexpr int kOldestProbed = 1;

using MakeNet = std::unique_ptr<Net> (*)(const void*);
const std::map<int, MakeNet> kAdapters = {
    {6, make_net_v6},   {7, make_net_v7},   {8, make_net_v8},   {9, make_net_v9},
    {10, make_net_v10}, {11, make_net_v11}, {12, make_net_v12},
};

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

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::mutex g_init_mutex;
std::set<std::string> g_init_tried;  // by mapped path: init is once a process, also after a failure

}  // namespace

PluginError::PluginError(const std::string& call, int code, const std::string& what)
    : std::runtime_error(returned_text(call, code) + (what.empty() ? "" : ": " + what)),
      code_(code) {}

PluginThrew::PluginThrew(const std::string& call, const std::string& thrown,
                         const std::string& what)
    : PluginError("plugin call " + call + " threw an exception of C++ (" + thrown + ")" +
                      (what.empty() || what[0] == ';' ? "" : ": ") + what,
                  kNetInternalError) {}

Plugin::Plugin(const std::string& path, int abi) {
  // A plugin writes to sockets without MSG_NOSIGNAL: a dead peer must be a code, not our death.
  signal(SIGPIPE, SIG_IGN);
  const auto load = [&path] {
    const exit_guard::Loading loading(path);
    const plugin_call::About about(
        &path, [](const void* of) { return "of " + *static_cast<const std::string*>(of); });
    const plugin_call::Mark mark("load");
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  };
  void* library = load();
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
    const auto adapter = kAdapters.find(version);
    if (net_ == nullptr && adapter != kAdapters.end() && (abi == 0 || abi == version)) {
      net_ = adapter->second(table);
    }
    exit_guard::watch(table, path_);
  }
  if (abi_versions_.empty()) {
    throw LibraryError(path_ + " is no NCCL network plugin: it exports no ncclNetPlugin_vN");
  }
  if (net_ == nullptr && abi != 0 && kAdapters.count(abi) != 0) {
    throw LibraryError(path_ + " offers ABI " + list_of(abi_versions_) + ", not the v" +
                       std::to_string(abi) + " that was asked for: leave out --abi, or use " +
                       "one that it offers");
  }
  if (net_ == nullptr) {
    const std::vector<int>& known = known_abi_versions();
    throw LibraryError(path_ + " offers ABI " + list_of(abi_versions_) + ", supported are v" +
                       std::to_string(known.front()) + " to v" + std::to_string(known.back()) +
                       ": use a build of the plugin that exports one of those");
  }
}

void Plugin::init(int traffic_class) {
  {
    const std::lock_guard<std::mutex> lock(g_init_mutex);
    const bool once = !net_->has_contexts();
    const bool tried = once ? !g_init_tried.insert(path_).second : g_init_tried.count(path_) != 0;
    if (tried) {
      throw PluginError("init", kNetInternalError,
                        "a plugin can be initialised once a process, also after a failure");
    }
  }
  if (initialised_) {
    throw PluginError("init", kNetInternalError, "this context is initialised already");
  }
  // Some have but this entry before it is called.
  const std::vector<std::string> before = net_->missing();
  if (std::find(before.begin(), before.end(), "init") != before.end()) {
    throw IncompleteTable(path_ + ": its table of v" + std::to_string(net_->abi()) +
                          " has no init: use another version of it (--abi), or another plugin");
  }
  net_->set_traffic_class(traffic_class);
  const int code = net_->init(plugin_log::function());
  if (code != kNetSuccess) {
    const std::string said = plugin_log::quote_call();
    throw PluginError("init", code, said.empty() ? "" : said.substr(2));
  }
  const std::vector<std::string> still = net_->missing();
  if (!still.empty()) {
    throw IncompleteTable(path_ + ": after init its table of v" + std::to_string(net_->abi()) +
                          " still has no " + list_of(still) +
                          ", which NCCL calls: use another version of it (--abi), or another "
                          "plugin");
  }
  initialised_ = true;
}

void Plugin::finalize() {
  if (!std::exchange(initialised_, false) || !net_->has_contexts()) return;
  const int code = net_->finalize();
  if (code != kNetSuccess) {
    const std::string said = plugin_log::quote_call();
    throw PluginError("finalize", code, said.empty() ? "" : said.substr(2));
  }
}

const std::vector<int>& known_abi_versions() {
  static const std::vector<int> versions = [] {
    std::vector<int> all;
    for (const auto& [version, make] : kAdapters) all.push_back(version);
    return all;
  }();
  return versions;
}

}  // namespace tcpx
