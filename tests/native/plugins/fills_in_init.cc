// Plugins of three versions whose tables have but an init, which fills them: v8 whole, v9 without
// what moves data, and v10 has no init either.
#include "net/abi_v10.h"
#include "net/abi_v8.h"

namespace {

int devices(int* count) {
  *count = 3;
  return kNetSuccess;
}
int get_properties(int, NetPropertiesV8* properties) {
  *properties = {};
  properties->max_recvs = 5;
  return kNetSuccess;
}
int listen(int, void*, void**) { return kNetSuccess; }
int connect(int, void*, void**, NetDeviceHandle**) { return kNetSuccess; }
int accept(void*, void**, NetDeviceHandle**) { return kNetSuccess; }
int reg_mr(void*, void*, size_t, int, void**) { return kNetSuccess; }
int dereg_mr(void*, void*) { return kNetSuccess; }
int isend(void*, void*, int, int, void*, void**) { return kNetSuccess; }
int irecv(void*, int, void**, int*, int*, void**, void**) { return kNetSuccess; }
int iflush(void*, int, void**, int*, void**, void**) { return kNetSuccess; }
int test(void*, int*, int*) { return kNetSuccess; }
int close(void*) { return kNetSuccess; }
int init_v8(NetLogger);
int init_v9(NetLogger);

}  // namespace

extern "C" {
__attribute__((visibility("default"))) NetTableV8 ncclNetPlugin_v8 = {"fills", init_v8};
__attribute__((visibility("default"))) NetTableV9 ncclNetPlugin_v9 = {"fills", init_v9};
__attribute__((visibility("default"))) NetTableV10 ncclNetPlugin_v10 = {"fills"};
}

namespace {

int init_v8(NetLogger) {
  ncclNetPlugin_v8 = {"fills", init_v8, devices, get_properties, listen, connect,
                      accept,  reg_mr,  nullptr, dereg_mr,       isend,  irecv,
                      iflush,  test,    close,   close,          close};
  return kNetSuccess;
}
int init_v9(NetLogger) {
  ncclNetPlugin_v9.devices = devices;
  ncclNetPlugin_v9.listen = listen;
  ncclNetPlugin_v9.accept = accept;
  ncclNetPlugin_v9.connect = connect;
  ncclNetPlugin_v9.reg_mr = reg_mr;
  ncclNetPlugin_v9.dereg_mr = dereg_mr;
  ncclNetPlugin_v9.iflush = iflush;
  ncclNetPlugin_v9.test = test;
  ncclNetPlugin_v9.close_send = ncclNetPlugin_v9.close_recv = ncclNetPlugin_v9.close_listen = close;
  return kNetSuccess;
}

}  // namespace
