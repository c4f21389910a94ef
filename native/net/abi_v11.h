// Version 11 of the table: a context for each communicator, which ends with finalize.
#pragma once

#include "net/abi_v10.h"

extern "C" {

// How a communicator will use its connections; -1: not known.
struct NetCommAttributes {
  int32_t max_concurrent_peers;
  int32_t min_concurrent_peers;
  int32_t max_flows_per_peer;
  int32_t min_flows_per_peer;
};
static_assert(sizeof(NetCommAttributes) == 16, "ncclNetCommAttr_v11_t");

struct NetAttributes {
  NetCommAttributes send;
  NetCommAttributes receive;
  uint32_t operation;
  uint32_t algorithm;
  uint32_t protocol;
};
static_assert(sizeof(NetAttributes) == 44, "ncclNetAttr_v11_t");
TCPX_NET_AT(NetAttributes, operation, 32);

struct NetPropertiesV11 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  NetVDeviceV9 v_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request;
};
static_assert(sizeof(NetPropertiesV11) == 112, "ncclNetProperties_v11_t");
TCPX_NET_AT(NetPropertiesV11, pci_path, 8);
TCPX_NET_AT(NetPropertiesV11, guid, 16);
TCPX_NET_AT(NetPropertiesV11, ptr_support, 24);
TCPX_NET_AT(NetPropertiesV11, reg_is_global, 28);
TCPX_NET_AT(NetPropertiesV11, force_flush, 32);
TCPX_NET_AT(NetPropertiesV11, speed_mbps, 36);
TCPX_NET_AT(NetPropertiesV11, port, 40);
TCPX_NET_AT(NetPropertiesV11, latency_us, 44);
TCPX_NET_AT(NetPropertiesV11, max_comms, 48);
TCPX_NET_AT(NetPropertiesV11, max_recvs, 52);
TCPX_NET_AT(NetPropertiesV11, net_device_type, 56);
TCPX_NET_AT(NetPropertiesV11, net_device_version, 60);
TCPX_NET_AT(NetPropertiesV11, v_device, 64);
TCPX_NET_AT(NetPropertiesV11, max_p2p_bytes, 88);
TCPX_NET_AT(NetPropertiesV11, max_coll_bytes, 96);
TCPX_NET_AT(NetPropertiesV11, max_multi_request, 104);

struct NetTableV11 {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, NetCommConfig* config, NetLogger logger,
              NetProfiler profiler);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV11* properties);
  int (*listen)(void* context, int device, void* handle, void** listen_comm);
  int (*connect)(void* context, int device, void* handle, void** send_comm,
                 NetDeviceHandle** send_device);
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                        void** mhandle);  // may be NULL
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* phandle,
               void** request);
  int (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
               void** phandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** dptr_mhandle);  // may be NULL
  int (*irecv_consumed)(void* recv_comm, int n, void* request);          // may be NULL
  int (*make_v_device)(int* device, NetVDeviceV9* parts);                // may be NULL
  int (*finalize)(void* context);                                        // may be NULL
  int (*set_net_attr)(void* context, NetAttributes* attributes);         // may be NULL
};
static_assert(sizeof(NetTableV11) == 176, "ncclNet_v11_t");
TCPX_NET_AT(NetTableV11, init, 8);
TCPX_NET_AT(NetTableV11, devices, 16);
TCPX_NET_AT(NetTableV11, get_properties, 24);
TCPX_NET_AT(NetTableV11, listen, 32);
TCPX_NET_AT(NetTableV11, connect, 40);
TCPX_NET_AT(NetTableV11, accept, 48);
TCPX_NET_AT(NetTableV11, reg_mr, 56);
TCPX_NET_AT(NetTableV11, reg_mr_dma_buf, 64);
TCPX_NET_AT(NetTableV11, dereg_mr, 72);
TCPX_NET_AT(NetTableV11, isend, 80);
TCPX_NET_AT(NetTableV11, irecv, 88);
TCPX_NET_AT(NetTableV11, iflush, 96);
TCPX_NET_AT(NetTableV11, test, 104);
TCPX_NET_AT(NetTableV11, close_send, 112);
TCPX_NET_AT(NetTableV11, close_recv, 120);
TCPX_NET_AT(NetTableV11, close_listen, 128);
TCPX_NET_AT(NetTableV11, get_device_mr, 136);
TCPX_NET_AT(NetTableV11, irecv_consumed, 144);
TCPX_NET_AT(NetTableV11, make_v_device, 152);
TCPX_NET_AT(NetTableV11, finalize, 160);
TCPX_NET_AT(NetTableV11, set_net_attr, 168);

}  // extern "C"
