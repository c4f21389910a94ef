#include "library/plugins.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "engine/watch.h"
#include "library/times.h"
#include "net/exit_guard.h"
#include "net/logger.h"
#include "tcpx_p2p/session.h"

namespace tcpx_p2p {
namespace {

constexpr char kPathVariable[] = "UCCL_TCPX_PLUGIN_PATH";
constexpr char kChunkVariable[] = "NCCL_DYNAMIC_CHUNK_SIZE";
// How long a connect of softtcpx waits for its accept; the caller's patience is to hold instead.
constexpr char kAnswerVariable[] = "SOFTTCPX_ANSWER_TIMEOUT_MS";
// Whether softtcpx, which like TCPX keeps the size of a receive to itself, tells it.
constexpr char kSizesVariable[] = "SOFTTCPX_REPORT_SIZES";
// Seconds after which a call of a plugin that has not returned ends this process; none: never.
constexpr char kCallVariable[] = "TCPX_P2P_CALL_TIMEOUT_S";
constexpr int kStalledCode = 6;  // as the command's exit code
constexpr int kSofttcpxAbi = 7;  // of its file without a version in its name

struct Loaded {
  PluginUse use;
  std::string error;  // of the first attempt; there is but one a process
};

std::mutex g_mutex;
std::map<std::pair<std::string, int>, Loaded> g_loaded;  // by path as given, and version

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

bool is_softtcpx(tcpx::Plugin& plugin) {
  return plugin.net().name().compare(0, 8, "softtcpx") == 0;
}

// Where this library lies, or the program that it is linked into.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&use_plugin), &info) == 0) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::string path_of(const std::string& spec, int abi) {
  if (spec.empty()) {
    const std::string path = variable(kPathVariable);
    if (!path.empty()) return path;
    throw FatalError(
        Status::kPluginMissing,
        "no plugin is named: give its path, or \"softtcpx\", or set " + std::string(kPathVariable));
  }
  if (spec != "softtcpx" && spec != "null") return spec;
  const bool versioned = spec == "softtcpx" && abi != 0 && abi != kSofttcpxAbi;
  const std::string file =
      "libnccl-net-" + spec + (versioned ? "-v" + std::to_string(abi) : "") + ".so";
  for (const char* from_here : {"", "../"}) {  // as it is built, and as it is installed
    const std::string path = own_folder() + from_here + file;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return file;  // wherever the dynamic linker finds it
}

uint64_t wire_chunk_bytes(uint64_t chunk_bytes) {
  const std::string set = variable(kChunkVariable);
  if (set.empty()) {
    setenv(kChunkVariable, std::to_string(chunk_bytes).c_str(), 1);
    return chunk_bytes;
  }
  char* end = nullptr;
  const unsigned long long bytes = strtoull(set.c_str(), &end, 10);
  if (*end != '\0' || set[0] == '-') {
    throw UsageError(Status::kInvalidArgument,
                     std::string(kChunkVariable) + " (" + set +
                         ") is not a whole number of bytes; unset it to have chunk_bytes");
  }
  return bytes;
}

Loaded load(const std::string& path, int abi, uint64_t chunk_bytes) {
  Loaded loaded;
  loaded.use.wire_chunk_bytes = wire_chunk_bytes(chunk_bytes);
  try {
    tcpx::exit_guard::keep_out();
    loaded.use.plugin = std::make_shared<tcpx::Plugin>(path, abi);
    tcpx::Plugin& plugin = *loaded.use.plugin;
    if (is_softtcpx(plugin)) {
      setenv(kAnswerVariable, "0", 0);
      setenv(kSizesVariable, "1", 0);
    }
    tcpx::plugin_log::begin_init();
    plugin.init();
    tcpx::plugin_log::initialised();
  } catch (const std::exception& error) {
    loaded.error = error.what();
    if (loaded.use.plugin != nullptr) loaded.error = path + ": " + loaded.error;
  }
  return loaded;
}

}  // namespace

bool tells_sizes(tcpx::Plugin& plugin) {
  return is_softtcpx(plugin) && variable(kSizesVariable) == "1";
}

void guard_calls(const std::string& option, double limit_s) {
  const std::string set = variable(kCallVariable);
  if (set.empty()) {
    if (limit_s > 0) tcpx::watch::guard(option, limit_s, kStalledCode);
    return;
  }
  char* end = nullptr;
  const double seconds = strtod(set.c_str(), &end);
  if (*end != '\0' || !(seconds > 0 && seconds <= kLongestWaitS)) {
    throw UsageError(Status::kInvalidArgument,
                     std::string(kCallVariable) + " (" + set +
                         ") is not a number of seconds above 0; unset it to wait for ever");
  }
  tcpx::watch::guard(kCallVariable, seconds, kStalledCode);
}

PluginUse use_plugin(const std::string& spec, int abi, uint64_t chunk_bytes) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const std::string path = path_of(spec, abi);
  guard_calls();
  auto found = g_loaded.find({path, abi});
  if (found == g_loaded.end()) {
    found = g_loaded.emplace(std::make_pair(path, abi), load(path, abi, chunk_bytes)).first;
  }
  const Loaded& loaded = found->second;
  if (!loaded.error.empty()) {
    const bool missing = loaded.use.plugin == nullptr;
    throw FatalError(missing ? Status::kPluginMissing : Status::kSetupFailed, loaded.error);
  }
  if (chunk_bytes > loaded.use.wire_chunk_bytes) {
    throw UsageError(Status::kInvalidArgument,
                     "chunk_bytes (" + std::to_string(chunk_bytes) + ") is larger than " +
                         kChunkVariable + " (" + std::to_string(loaded.use.wire_chunk_bytes) +
                         "), with which this process has loaded the plugin: use that or less, or "
                         "set the variable before the first session");
  }
  PluginUse use = loaded.use;
  if (use.plugin->net().has_contexts()) {  // one each, as a communicator of NCCL has
    try {
      use.plugin = std::make_shared<tcpx::Plugin>(use.plugin->path(), abi);
      use.plugin->init();
    } catch (const std::exception& error) {
      throw FatalError(Status::kSetupFailed, path + ": " + error.what());
    }
    use.finalizes = true;
  }
  return use;
}

}  // namespace tcpx_p2p
