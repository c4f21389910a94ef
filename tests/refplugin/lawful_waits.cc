// A plugin of v6 that is lawful and odd: its accept waits until somebody connects, it takes any
// number of requests, and init fills its table.
#include "lawful.h"
#include "net/abi_v6.h"

extern "C" __attribute__((visibility("default"))) NetTableV6 ncclNetPlugin_v6;

namespace {

using namespace lawful;

int devices(int* count) {
  *count = 1;
  return kNetSuccess;
}

int get_properties(int device, NetPropertiesV6* out) {
  if (device != 0) return kNetInvalidArgument;
  *out = {"lo", nullptr, 1, kNetPtrHost, 10000, 0, 0, 1024, 1};
  return kNetSuccess;
}

int connect_v6(int device, void* handle, void** send_comm) {
  return connect_to(device, handle, send_comm);
}

int accept_at_last(void* listen_comm, void** recv_comm) {
  return accept_within(-1, listen_comm, recv_comm);
}

int reg_mr_v6(void* comm, void* data, int size, int type, void** mhandle) {
  return reg_mr(comm, data, static_cast<size_t>(size), type, mhandle);
}

int isend(void* comm, void* data, int size, int, void*, void** request) {
  return post(SIZE_MAX, comm, data, static_cast<uint64_t>(size), request);
}

int irecv(void* comm, int, void** data, int* sizes, int*, void**, void** request) {
  return post(SIZE_MAX, comm, data[0], static_cast<uint64_t>(sizes[0]), request);
}

int init(NetLogger logger) {
  logger(kNetLogInfo, ~0ul, __func__, __LINE__, "lawful_waits: host memory");
  ncclNetPlugin_v6 = {
      "lawful_waits", init,      devices,    get_properties, listen_on,    connect_v6,
      accept_at_last, reg_mr_v6, nullptr,    dereg_mr,       isend,        irecv,
      no_flush,       test,      close_comm, close_comm,     close_listen,
  };
  return kNetSuccess;
}

}  // namespace

NetTableV6 ncclNetPlugin_v6 = {"lawful_waits", init};
