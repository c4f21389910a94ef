// A plugin of v8 that is lawful and odd: it makes new strings for each look at its properties, does
// not know its speed, has room for 128 requests and tells no sizes; it has no memory of GPUs, so
// that its iflush, which nobody may call, is an error.
#include <string>

#include "lawful.h"
#include "net/abi_v8.h"

namespace {

using namespace lawful;

constexpr size_t kRequests = 128;

int init(NetLogger logger) {
  logger(kNetLogInfo, ~0ul, __func__, __LINE__, "lawful_fresh: host memory");
  return kNetSuccess;
}

int devices(int* count) {
  *count = 1;
  return kNetSuccess;
}

int get_properties(int device, NetPropertiesV8* out) {
  if (device != 0) return kNetInvalidArgument;
  out->name = (new std::string("lo"))->c_str();
  out->pci_path = (new std::string("/sys/devices/virtual/net/lo"))->c_str();
  out->guid = 1;
  out->ptr_support = kNetPtrHost;
  out->reg_is_global = 0;
  out->speed_mbps = 0;
  out->port = 0;
  out->latency_us = 0;
  out->max_comms = 1024;
  out->max_recvs = 1;
  out->net_device_type = kNetDeviceHost;
  out->net_device_version = 0;
  return kNetSuccess;
}

int accept_now(void* listen_comm, void** recv_comm, NetDeviceHandle**) {
  return accept_within(0, listen_comm, recv_comm);
}

int isend(void* comm, void* data, int size, int, void*, void** request) {
  return post(kRequests, comm, data, static_cast<uint64_t>(size), request);
}

int irecv(void* comm, int, void** data, int* sizes, int*, void**, void** request) {
  return post(kRequests, comm, data[0], static_cast<uint64_t>(sizes[0]), request);
}

int test_alone(void* request, int* done, int*) { return test(request, done, nullptr); }

}  // namespace

extern "C" __attribute__((visibility("default"))) const NetTableV8 ncclNetPlugin_v8 = {
    "lawful_fresh", init,       devices,      get_properties, listen_on, connect_to, accept_now,
    reg_mr,         nullptr,    dereg_mr,     isend,          irecv,     no_flush,   test_alone,
    close_comm,     close_comm, close_listen, nullptr,        nullptr,
};
