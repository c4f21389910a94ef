// The two symbols of libplugin_TCPX.so.
#include <cstdio>
#include <exception>

#include "library/nixl/backend.h"
#include "library/nixl/guard.h"
#include "library/nixl/options.h"

namespace tcpx::nixl {
namespace {

Backend* create(const InitParams* init) {
  try {
    return make_backend(*init);
  } catch (const std::exception& error) {
    fprintf(stderr, "tcpx-mpi nixl: %s\n", error.what());
    return nullptr;
  }
}

PluginTable g_table = {
    kPluginApi,
    create,
    [](Backend* backend) { delete backend; },
    [] { return "TCPX"; },
    [] { return TCPX_MPI_VERSION; },
    [] { return default_params(); },
    [] { return MemoryList{kDram, kVram}; },
};

}  // namespace
}  // namespace tcpx::nixl

extern "C" __attribute__((visibility("default"))) void* nixl_plugin_init() {
  const std::string why = tcpx::nixl::why_not_this_nixl();
  if (why.empty()) return &tcpx::nixl::g_table;
  fprintf(stderr, "tcpx-mpi nixl: the backend TCPX is not loaded: %s\n", why.c_str());
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void nixl_plugin_fini() {}
