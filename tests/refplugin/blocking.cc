// The second plugin as tables of v6 and v9 whose accept blocks until a peer has connected, as that
// of several public plugins does. BLOCKING_CONNECTS is how many calls a connect takes (1): then it
// is there, whether the peer accepts or not. Where the second plugin is stricter than NCCL bears,
// with a second init, few requests and small registrations, this one is not.
#define REFPLUGIN_REQUESTS 32

#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "net/abi_v6.h"
#include "net/abi_v9.h"
#include "refplugin.cc"

namespace blocking {

int init_again(NetLogger logger) {
  g_initialised = false;
  return init(logger);
}

int connect_now(int device, void* handle, void** comm, NetDeviceHandle** device_handle) {
  const char* calls = getenv("BLOCKING_CONNECTS");
  const bool at_once = calls == nullptr || atoi(calls) == 1;
  const int code = connect_to(device, handle, comm, device_handle);
  return at_once && code == 0 && *comm == nullptr ? connect_to(device, handle, comm, device_handle)
                                                  : code;
}

int accept_at_last(void* listen_comm, void** comm, NetDeviceHandle** device_handle) {
  pollfd ready{static_cast<Listener*>(listen_comm)->socket.fd(), POLLIN, 0};
  int code = 0;
  while (code == 0 && *comm == nullptr) {
    poll(&ready, 1, -1);
    code = accept_from(listen_comm, comm, device_handle);
  }
  return code;
}

// --- What differs by version

template <typename Properties>
int properties_of(int device, Properties* out) {
  NetPropertiesV7 found;
  if (const int code = get_properties(device, &found); code != 0) return code;
  *out = {};
  out->name = found.name;
  out->pci_path = found.pci_path;
  out->guid = found.guid;
  out->ptr_support = found.ptr_support;
  out->speed_mbps = found.speed_mbps;
  out->max_comms = found.max_comms;
  out->max_recvs = found.max_recvs;
  return 0;
}

int properties_v9(int device, NetPropertiesV9* out) {
  const int code = properties_of(device, out);
  out->net_device_type = kNetDeviceHost;
  out->v_device.ndevs = 1;
  out->max_p2p_bytes = out->max_coll_bytes = size_t{1} << 30;
  return code;
}

int connect_v6(int device, void* handle, void** comm) {
  NetDeviceHandle* none = nullptr;
  return connect_now(device, handle, comm, &none);
}

int accept_v6(void* listen_comm, void** comm) {
  NetDeviceHandle* none = nullptr;
  return accept_at_last(listen_comm, comm, &none);
}

// What is larger than an int is refused, as a size below 0.
int as_int(size_t size) { return size > size_t{1} << 30 ? -1 : static_cast<int>(size); }

int reg_mr_v9(void* comm, void* data, size_t size, int type, void** mhandle) {
  const int code = reg_mr(comm, data, 0, type, mhandle);
  if (code == kNetSuccess) static_cast<Region*>(*mhandle)->bytes = size;
  return code;
}

int isend_v9(void* comm, void* data, size_t size, int tag, void* mhandle, void** request) {
  return isend(comm, data, as_int(size), tag, mhandle, request);
}

int irecv_v9(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
             void** request) {
  int narrow = n == 1 ? as_int(sizes[0]) : 0;
  // A completion that nobody needs to hear of: it is told all the same.
  if (*request == reinterpret_cast<void*>(1)) *request = nullptr;
  return irecv(comm, n, data, &narrow, tags, mhandles, request);
}

}  // namespace blocking

extern "C" __attribute__((visibility("default"))) const NetTableV6 ncclNetPlugin_v6 = {
    "blocking",
    blocking::init_again,
    devices,
    blocking::properties_of<NetPropertiesV6>,
    listen_on,
    blocking::connect_v6,
    blocking::accept_v6,
    reg_mr,
    nullptr,
    dereg_mr,
    isend,
    irecv,
    iflush,
    test,
    close_comm,
    close_comm,
    close_listen,
};

extern "C" __attribute__((visibility("default"))) const NetTableV9 ncclNetPlugin_v9 = {
    "blocking",
    blocking::init_again,
    devices,
    blocking::properties_v9,
    listen_on,
    blocking::connect_now,
    blocking::accept_at_last,
    blocking::reg_mr_v9,
    nullptr,
    dereg_mr,
    blocking::isend_v9,
    blocking::irecv_v9,
    iflush,
    test,
    close_comm,
    close_comm,
    close_listen,
    nullptr,
    nullptr,
    nullptr,
};
