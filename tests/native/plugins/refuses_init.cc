// A plugin whose init says why it fails, and fails; it counts the calls in an exported variable.
#include "net/abi_v7.h"

extern "C" {
__attribute__((visibility("default"))) int refuses_init_calls = 0;
}

namespace {

int init(NetLogger logger) {
  ++refuses_init_calls;
  logger(kNetLogWarn, ~0ul, "init", 7, "no %s today: %s\n", "rx_rule_manager",
         static_cast<const char*>(nullptr));
  return kNetInternalError;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const NetTableV7 ncclNetPlugin_v7 = {
    "refuses", init,    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
    nullptr,   nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
