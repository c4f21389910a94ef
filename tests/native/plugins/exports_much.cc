// A plugin with a global name beside its table, as the real one has many.
#include "net/abi_v7.h"

extern "C" {
__attribute__((visibility("default"))) int tcpx_test_leaked_name = 1;
}

extern "C" __attribute__((visibility("default"))) const NetTableV7 ncclNetPlugin_v7 = {"exports"};
