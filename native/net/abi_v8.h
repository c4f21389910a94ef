// Version 8 of the table: registrations above 2 GiB.
#pragma once

#include "net/abi.h"

extern "C" {

struct NetPropertiesV8 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(NetPropertiesV8) == 64, "ncclNetProperties_v8_t");
TCPX_NET_AT(NetPropertiesV8, pci_path, 8);
TCPX_NET_AT(NetPropertiesV8, guid, 16);
TCPX_NET_AT(NetPropertiesV8, ptr_support, 24);
TCPX_NET_AT(NetPropertiesV8, reg_is_global, 28);
TCPX_NET_AT(NetPropertiesV8, speed_mbps, 32);
TCPX_NET_AT(NetPropertiesV8, port, 36);
TCPX_NET_AT(NetPropertiesV8, latency_us, 40);
TCPX_NET_AT(NetPropertiesV8, max_comms, 44);
TCPX_NET_AT(NetPropertiesV8, max_recvs, 48);
TCPX_NET_AT(NetPropertiesV8, net_device_type, 52);
TCPX_NET_AT(NetPropertiesV8, net_device_version, 56);

struct NetTableV8 {
  const char* name;
  int (*init)(NetLogger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV8* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm, NetDeviceHandle** send_device);
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);
  int (*reg_mr)(void* comm, void* data, size_t size, int type, void** mhandle);
  int (*reg_mr_dma_buf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                        void** mhandle);  // may be NULL
  int (*dereg_mr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*close_send)(void* send_comm);
  int (*close_recv)(void* recv_comm);
  int (*close_listen)(void* listen_comm);
  int (*get_device_mr)(void* comm, void* mhandle, void** dptr_mhandle);  // may be NULL
  int (*irecv_consumed)(void* recv_comm, int n, void* request);          // may be NULL
};
static_assert(sizeof(NetTableV8) == 152, "ncclNet_v8_t");
TCPX_NET_AT(NetTableV8, init, 8);
TCPX_NET_AT(NetTableV8, devices, 16);
TCPX_NET_AT(NetTableV8, get_properties, 24);
TCPX_NET_AT(NetTableV8, listen, 32);
TCPX_NET_AT(NetTableV8, connect, 40);
TCPX_NET_AT(NetTableV8, accept, 48);
TCPX_NET_AT(NetTableV8, reg_mr, 56);
TCPX_NET_AT(NetTableV8, reg_mr_dma_buf, 64);
TCPX_NET_AT(NetTableV8, dereg_mr, 72);
TCPX_NET_AT(NetTableV8, isend, 80);
TCPX_NET_AT(NetTableV8, irecv, 88);
TCPX_NET_AT(NetTableV8, iflush, 96);
TCPX_NET_AT(NetTableV8, test, 104);
TCPX_NET_AT(NetTableV8, close_send, 112);
TCPX_NET_AT(NetTableV8, close_recv, 120);
TCPX_NET_AT(NetTableV8, close_listen, 128);
TCPX_NET_AT(NetTableV8, get_device_mr, 136);
TCPX_NET_AT(NetTableV8, irecv_consumed, 144);

}  // extern "C"
