// Version 9 of the table: messages above 2 GiB, and devices made of several.
#pragma once

#include "net/abi.h"

extern "C" {

struct NetVDeviceV9 {
  int ndevs;
  int devs[4];
};
static_assert(sizeof(NetVDeviceV9) == 20, "ncclNetVDeviceProps_v9_t");

struct NetPropertiesV9 {
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
};
static_assert(sizeof(NetPropertiesV9) == 104, "ncclNetProperties_v9_t");
TCPX_NET_AT(NetPropertiesV9, pci_path, 8);
TCPX_NET_AT(NetPropertiesV9, guid, 16);
TCPX_NET_AT(NetPropertiesV9, ptr_support, 24);
TCPX_NET_AT(NetPropertiesV9, reg_is_global, 28);
TCPX_NET_AT(NetPropertiesV9, force_flush, 32);
TCPX_NET_AT(NetPropertiesV9, speed_mbps, 36);
TCPX_NET_AT(NetPropertiesV9, port, 40);
TCPX_NET_AT(NetPropertiesV9, latency_us, 44);
TCPX_NET_AT(NetPropertiesV9, max_comms, 48);
TCPX_NET_AT(NetPropertiesV9, max_recvs, 52);
TCPX_NET_AT(NetPropertiesV9, net_device_type, 56);
TCPX_NET_AT(NetPropertiesV9, net_device_version, 60);
TCPX_NET_AT(NetPropertiesV9, v_device, 64);
TCPX_NET_AT(NetPropertiesV9, max_p2p_bytes, 88);
TCPX_NET_AT(NetPropertiesV9, max_coll_bytes, 96);

struct NetTableV9 {
  const char* name;
  int (*init)(NetLogger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV9* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm, NetDeviceHandle** send_device);
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                        void** mhandle);  // may be NULL
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** dptr_mhandle);  // may be NULL
  int (*irecv_consumed)(void* recv_comm, int n, void* request);          // may be NULL
  int (*make_v_device)(int* device, NetVDeviceV9* parts);                // may be NULL
};
static_assert(sizeof(NetTableV9) == 160, "ncclNet_v9_t");
TCPX_NET_AT(NetTableV9, init, 8);
TCPX_NET_AT(NetTableV9, devices, 16);
TCPX_NET_AT(NetTableV9, get_properties, 24);
TCPX_NET_AT(NetTableV9, listen, 32);
TCPX_NET_AT(NetTableV9, connect, 40);
TCPX_NET_AT(NetTableV9, accept, 48);
TCPX_NET_AT(NetTableV9, reg_mr, 56);
TCPX_NET_AT(NetTableV9, reg_mr_dma_buf, 64);
TCPX_NET_AT(NetTableV9, dereg_mr, 72);
TCPX_NET_AT(NetTableV9, isend, 80);
TCPX_NET_AT(NetTableV9, irecv, 88);
TCPX_NET_AT(NetTableV9, iflush, 96);
TCPX_NET_AT(NetTableV9, test, 104);
TCPX_NET_AT(NetTableV9, close_send, 112);
TCPX_NET_AT(NetTableV9, close_recv, 120);
TCPX_NET_AT(NetTableV9, close_listen, 128);
TCPX_NET_AT(NetTableV9, get_device_mr, 136);
TCPX_NET_AT(NetTableV9, irecv_consumed, 144);
TCPX_NET_AT(NetTableV9, make_v_device, 152);

}  // extern "C"
