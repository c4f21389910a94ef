// A plugin of v12 that is lawful and odd: its library stays where it is when it is closed, init
// fills its table, and its properties have what NCCL does not look at, or takes otherwise: speed
// -1, port 1000, a device type of NCCL 2.31, no maxCollBytes and no maxMultiRequestSize.
#include <dlfcn.h>

#include "lawful.h"
#include "net/abi_v12.h"

extern "C" __attribute__((visibility("default"))) NetTableV12 ncclNetPlugin_v12;

namespace {

using namespace lawful;

constexpr size_t kRequests = 32;
constexpr int kDeviceGda = 5;

int devices(int* count) {
  *count = 1;
  return kNetSuccess;
}

int get_properties(int device, NetPropertiesV12* out) {
  if (device != 0) return kNetInvalidArgument;
  out->name = "lo";
  out->pci_path = nullptr;
  out->guid = 0;
  out->ptr_support = kNetPtrHost;
  out->reg_is_global = out->force_flush = 0;
  out->speed_mbps = -1;
  out->port = 1000;
  out->latency_us = 0;
  out->max_comms = INT32_MAX;
  out->max_recvs = 1;
  out->net_device_type = kDeviceGda;
  out->net_device_version = 1;
  out->v_device = {1, {0}};
  out->max_p2p_bytes = size_t{1} << 30;
  out->max_coll_bytes = 0;
  out->max_multi_request = 0;
  out->rail_id = out->plane_id = -1;
  return kNetSuccess;
}

int listen_v12(void*, int device, void* handle, void** comm) {
  return listen_on(device, handle, comm);
}

int connect_v12(void*, int device, void* handle, void** comm, NetDeviceHandle** device_handle) {
  return connect_to(device, handle, comm, device_handle);
}

int accept_now(void* listen_comm, void** recv_comm, NetDeviceHandle**) {
  return accept_within(0, listen_comm, recv_comm);
}

int isend(void* comm, void* data, size_t size, int, void*, void*, void** request) {
  return post(kRequests, comm, data, size, request);
}

int irecv(void* comm, int, void** data, size_t* sizes, int*, void**, void**, void** request) {
  return post(kRequests, comm, data[0], sizes[0], request);
}

int finalize(void*) { return kNetSuccess; }

int init(void** context, uint64_t, NetCommConfig*, NetLogger, NetProfiler) {
  Dl_info self;
  if (dladdr(&ncclNetPlugin_v12, &self) == 0 ||
      dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE) == nullptr) {
    return kNetSystemError;
  }
  static int one;
  *context = &one;
  ncclNetPlugin_v12 = {
      "lawful_stays", init,    devices,    get_properties, listen_v12,   connect_v12,
      accept_now,     reg_mr,  nullptr,    dereg_mr,       isend,        irecv,
      no_flush,       test,    close_comm, close_comm,     close_listen, nullptr,
      nullptr,        nullptr, finalize,   nullptr,
  };
  return kNetSuccess;
}

}  // namespace

NetTableV12 ncclNetPlugin_v12 = {"lawful_stays", init};
