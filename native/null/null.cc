// A net plugin whose calls complete at once and move no byte: what is left is the caller's own
// cost.
//
// It keeps the form of the contract (handles, windows of 16, consume) so that an engine drives it
// like any other; every byte that it "delivers" fails the check, as it must.
#include <cstddef>

#include "net/abi_v7.h"

namespace {

struct Comm {
  int posted = 0;
  char requests[kNetMaxRequests] = {};
};

int init(NetLogger) { return kNetSuccess; }
int devices(int* count) {
  *count = 1;
  return kNetSuccess;
}
int get_properties(int, NetPropertiesV7* properties) {
  *properties = {};
  properties->name = "null0";
  properties->ptr_support = kNetPtrHost;
  properties->speed_mbps = 1;
  properties->max_comms = 65536;
  properties->max_recvs = 1;
  return kNetSuccess;
}
int listen(int, void*, void** comm) {
  *comm = new Comm;
  return kNetSuccess;
}
int connect(int, void*, void** comm, NetDeviceHandle**) {
  *comm = new Comm;
  return kNetSuccess;
}
int accept(void*, void** comm, NetDeviceHandle**) {
  *comm = new Comm;
  return kNetSuccess;
}
int reg_mr(void* comm, void*, int, int, void** mhandle) {
  *mhandle = comm;
  return kNetSuccess;
}
int dereg_mr(void*, void*) { return kNetSuccess; }
int post(void* comm, void** request) {
  auto* c = static_cast<Comm*>(comm);
  *request = &c->requests[c->posted++ % kNetMaxRequests];
  return kNetSuccess;
}
int isend(void* comm, void*, int, int, void*, void** request) { return post(comm, request); }
int irecv(void* comm, int, void**, int*, int*, void**, void** request) {
  return post(comm, request);
}
int iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return kNetSuccess;
}
int test(void*, int* done, int*) {
  *done = 1;
  return kNetSuccess;
}
int close(void* comm) {
  delete static_cast<Comm*>(comm);
  return kNetSuccess;
}
int get_device_mr(void*, void*, void**) { return kNetSuccess; }
int irecv_consumed(void*, int, void*) { return kNetSuccess; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const NetTableV7 ncclNetPlugin_v7 = {
    "null", init,    devices,  get_properties, listen,         connect, accept,
    reg_mr, nullptr, dereg_mr, isend,          irecv,          iflush,  test,
    close,  close,   close,    get_device_mr,  irecv_consumed,
};
