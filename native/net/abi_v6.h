// Version 6 of the table: host and GPU memory, `int` sizes, no device side.
#pragma once

#include "net/abi.h"

extern "C" {

struct NetPropertiesV6 {
  const char* name;
  const char* pci_path;
  uint64_t guid;
  int ptr_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
};
static_assert(sizeof(NetPropertiesV6) == 48, "ncclNetProperties_v6_t");
TCPX_NET_AT(NetPropertiesV6, pci_path, 8);
TCPX_NET_AT(NetPropertiesV6, guid, 16);
TCPX_NET_AT(NetPropertiesV6, ptr_support, 24);
TCPX_NET_AT(NetPropertiesV6, speed_mbps, 28);
TCPX_NET_AT(NetPropertiesV6, port, 32);
TCPX_NET_AT(NetPropertiesV6, latency_us, 36);
TCPX_NET_AT(NetPropertiesV6, max_comms, 40);
TCPX_NET_AT(NetPropertiesV6, max_recvs, 44);

struct NetTableV6 {
  const char* name;
  int (*init)(NetLogger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV6* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm);
  int (*accept)(void* listen_comm, void** recv_comm);
  int (*reg_mr)(void* comm, void* data, int size, int type, void** mhandle);
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
};
static_assert(sizeof(NetTableV6) == 136, "ncclNet_v6_t");
TCPX_NET_AT(NetTableV6, init, 8);
TCPX_NET_AT(NetTableV6, devices, 16);
TCPX_NET_AT(NetTableV6, get_properties, 24);
TCPX_NET_AT(NetTableV6, listen, 32);
TCPX_NET_AT(NetTableV6, connect, 40);
TCPX_NET_AT(NetTableV6, accept, 48);
TCPX_NET_AT(NetTableV6, reg_mr, 56);
TCPX_NET_AT(NetTableV6, reg_mr_dma_buf, 64);
TCPX_NET_AT(NetTableV6, dereg_mr, 72);
TCPX_NET_AT(NetTableV6, isend, 80);
TCPX_NET_AT(NetTableV6, irecv, 88);
TCPX_NET_AT(NetTableV6, iflush, 96);
TCPX_NET_AT(NetTableV6, test, 104);
TCPX_NET_AT(NetTableV6, close_send, 112);
TCPX_NET_AT(NetTableV6, close_recv, 120);
TCPX_NET_AT(NetTableV6, close_listen, 128);

}  // extern "C"
