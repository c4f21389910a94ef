// Version 10 of the table: a traffic class for connect, and handles of a profiler.
#pragma once

#include "net/abi_v9.h"

extern "C" {

struct NetCommConfig {
  int traffic_class;  // -1: none was asked for
};
static_assert(sizeof(NetCommConfig) == 4, "ncclNetCommConfig_v10_t");

// What a plugin tells a profiler of an event of a request.
typedef int (*NetProfiler)(void** event, int type, void* phandle, int64_t plugin_id, void* extra);

struct NetTableV10 {
  const char* name;
  int (*init)(NetLogger logger, NetProfiler profiler);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV9* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, NetCommConfig* config, void* handle, void** send_comm,
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
};
static_assert(sizeof(NetTableV10) == 160, "ncclNet_v10_t");
TCPX_NET_AT(NetTableV10, init, 8);
TCPX_NET_AT(NetTableV10, devices, 16);
TCPX_NET_AT(NetTableV10, get_properties, 24);
TCPX_NET_AT(NetTableV10, listen, 32);
TCPX_NET_AT(NetTableV10, connect, 40);
TCPX_NET_AT(NetTableV10, accept, 48);
TCPX_NET_AT(NetTableV10, reg_mr, 56);
TCPX_NET_AT(NetTableV10, reg_mr_dma_buf, 64);
TCPX_NET_AT(NetTableV10, dereg_mr, 72);
TCPX_NET_AT(NetTableV10, isend, 80);
TCPX_NET_AT(NetTableV10, irecv, 88);
TCPX_NET_AT(NetTableV10, iflush, 96);
TCPX_NET_AT(NetTableV10, test, 104);
TCPX_NET_AT(NetTableV10, close_send, 112);
TCPX_NET_AT(NetTableV10, close_recv, 120);
TCPX_NET_AT(NetTableV10, close_listen, 128);
TCPX_NET_AT(NetTableV10, get_device_mr, 136);
TCPX_NET_AT(NetTableV10, irecv_consumed, 144);
TCPX_NET_AT(NetTableV10, make_v_device, 152);

}  // extern "C"
