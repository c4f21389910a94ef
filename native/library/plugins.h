// The plugins of this process: each is found, loaded and initialised once, after the variables that
// it needs are set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "net/library.h"

namespace tcpx_p2p {

// A plugin as one session uses it.
struct PluginUse {
  std::shared_ptr<tcpx::Plugin> plugin;
  uint64_t wire_chunk_bytes = 0;  // NCCL_DYNAMIC_CHUNK_SIZE when it was loaded
  bool finalizes = false;         // its context is this session's alone
};

// Whether this plugin, loaded by now, tells the size of every receive: of softtcpx, as it was told
// to. Of others that is seen in what they do.
bool tells_sizes(tcpx::Plugin& plugin);

// Has a thread watch calls of plugins from now on. The limit is TCPX_P2P_CALL_TIMEOUT_S; if that is
// not set, `limit_s`, set by `option` (0: no change). Throws UsageError.
void guard_calls(const std::string& option = "", double limit_s = 0);

// Throws FatalError where it is missing or refuses, UsageError for chunks that it was not set for.
PluginUse use_plugin(const std::string& spec, int abi, uint64_t chunk_bytes);

}  // namespace tcpx_p2p
