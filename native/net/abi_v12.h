// Version 12 of the table: rails and planes, and devices made of up to 8.
#pragma once

#include "net/abi_v11.h"

extern "C" {

struct NetVDeviceV12 {
  int ndevs;
  int devs[8];
};
static_assert(sizeof(NetVDeviceV12) == 36, "ncclNetVDeviceProps_v12_t");

struct NetPropertiesV12 {
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
  NetVDeviceV12 v_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request;
  int16_t rail_id;
  int16_t plane_id;
};
static_assert(sizeof(NetPropertiesV12) == 128, "ncclNetProperties_v12_t");
TCPX_NET_AT(NetPropertiesV12, pci_path, 8);
TCPX_NET_AT(NetPropertiesV12, guid, 16);
TCPX_NET_AT(NetPropertiesV12, ptr_support, 24);
TCPX_NET_AT(NetPropertiesV12, reg_is_global, 28);
TCPX_NET_AT(NetPropertiesV12, force_flush, 32);
TCPX_NET_AT(NetPropertiesV12, speed_mbps, 36);
TCPX_NET_AT(NetPropertiesV12, port, 40);
TCPX_NET_AT(NetPropertiesV12, latency_us, 44);
TCPX_NET_AT(NetPropertiesV12, max_comms, 48);
TCPX_NET_AT(NetPropertiesV12, max_recvs, 52);
TCPX_NET_AT(NetPropertiesV12, net_device_type, 56);
TCPX_NET_AT(NetPropertiesV12, net_device_version, 60);
TCPX_NET_AT(NetPropertiesV12, v_device, 64);
TCPX_NET_AT(NetPropertiesV12, max_p2p_bytes, 104);
TCPX_NET_AT(NetPropertiesV12, max_coll_bytes, 112);
TCPX_NET_AT(NetPropertiesV12, max_multi_request, 120);
TCPX_NET_AT(NetPropertiesV12, rail_id, 124);
TCPX_NET_AT(NetPropertiesV12, plane_id, 126);

struct NetTableV12 {
  const char* name;
  int (*init)(void** context, uint64_t comm_id, NetCommConfig* config, NetLogger logger,
              NetProfiler profiler);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV12* properties);
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
  int (*make_v_device)(int* device, NetVDeviceV12* parts);               // may be NULL
  int (*finalize)(void* context);                                        // may be NULL
  int (*set_net_attr)(void* context, NetAttributes* attributes);         // may be NULL
};
static_assert(sizeof(NetTableV12) == 176, "ncclNet_v12_t");
TCPX_NET_AT(NetTableV12, init, 8);
TCPX_NET_AT(NetTableV12, devices, 16);
TCPX_NET_AT(NetTableV12, get_properties, 24);
TCPX_NET_AT(NetTableV12, listen, 32);
TCPX_NET_AT(NetTableV12, connect, 40);
TCPX_NET_AT(NetTableV12, accept, 48);
TCPX_NET_AT(NetTableV12, reg_mr, 56);
TCPX_NET_AT(NetTableV12, reg_mr_dma_buf, 64);
TCPX_NET_AT(NetTableV12, dereg_mr, 72);
TCPX_NET_AT(NetTableV12, isend, 80);
TCPX_NET_AT(NetTableV12, irecv, 88);
TCPX_NET_AT(NetTableV12, iflush, 96);
TCPX_NET_AT(NetTableV12, test, 104);
TCPX_NET_AT(NetTableV12, close_send, 112);
TCPX_NET_AT(NetTableV12, close_recv, 120);
TCPX_NET_AT(NetTableV12, close_listen, 128);
TCPX_NET_AT(NetTableV12, get_device_mr, 136);
TCPX_NET_AT(NetTableV12, irecv_consumed, 144);
TCPX_NET_AT(NetTableV12, make_v_device, 152);
TCPX_NET_AT(NetTableV12, finalize, 160);
TCPX_NET_AT(NetTableV12, set_net_attr, 168);

}  // extern "C"
