// The C interface of an NCCL network plugin, version 7, as the plugin and its caller share it.
//
// These are our own declarations of a published binary layout; the static_asserts pin every size
// and offset, so that a slip here fails the build instead of corrupting a call.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Return codes of every call of the table.
enum TcpxMpiNetResult : int {
  kNetSuccess = 0,
  kNetUnhandledCudaError = 1,
  kNetSystemError = 2,
  kNetInternalError = 3,
  kNetInvalidArgument = 4,
  kNetInvalidUsage = 5,
  kNetRemoteError = 6,
  kNetInProgress = 7,
  kNetTimeout = 8,
};

// Bits of ptrSupport, and the `type` argument of regMr.
enum TcpxMpiNetPtr : int { kNetPtrHost = 1, kNetPtrCuda = 2, kNetPtrDmaBuf = 4 };

enum TcpxMpiNetDeviceType : int { kNetDeviceHost = 0, kNetDeviceUnpack = 1 };
enum : int { kNetUnpackVersion = 7, kNetHandleBytes = 128, kNetMaxRequests = 16 };

enum TcpxMpiNetLogLevel : int {
  kNetLogNone = 0,
  kNetLogVersion = 1,
  kNetLogWarn = 2,
  kNetLogInfo = 3,
  kNetLogAbort = 4,
  kNetLogTrace = 5,
};

typedef void (*NetLogger)(int level, unsigned long flags, const char* function, int line,
                          const char* format, ...);

struct NetPropertiesV7 {
  const char* name;
  const char* pci_path;  // may be NULL (a virtual interface)
  uint64_t guid;
  int ptr_support;
  int speed_mbps;
  int port;
  float latency_us;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
};
static_assert(sizeof(NetPropertiesV7) == 56, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, ptr_support) == 24, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, speed_mbps) == 28, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, port) == 32, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, latency_us) == 36, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, max_comms) == 40, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, max_recvs) == 44, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, net_device_type) == 48, "ncclNetProperties_v7_t");
static_assert(offsetof(NetPropertiesV7, net_device_version) == 52, "ncclNetProperties_v7_t");

struct NetDeviceHandle {
  int type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};
static_assert(sizeof(NetDeviceHandle) == 32, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(NetDeviceHandle, handle) == 8, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(NetDeviceHandle, size) == 16, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(NetDeviceHandle, needs_proxy_progress) == 24, "ncclNetDeviceHandle_v7_t");

struct NetTableV7 {
  const char* name;
  int (*init)(NetLogger logger);
  int (*devices)(int* count);
  int (*get_properties)(int device, NetPropertiesV7* properties);
  int (*listen)(int device, void* handle, void** listen_comm);
  int (*connect)(int device, void* handle, void** send_comm, NetDeviceHandle** send_device);
  int (*accept)(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);
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
  int (*get_device_mr)(void* comm, void* mhandle, void** dptr_mhandle);  // may be NULL
  int (*irecv_consumed)(void* recv_comm, int n, void* request);          // may be NULL
};
static_assert(sizeof(NetTableV7) == 152, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, init) == 8, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, devices) == 16, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, get_properties) == 24, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, listen) == 32, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, connect) == 40, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, accept) == 48, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, reg_mr) == 56, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, reg_mr_dma_buf) == 64, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, dereg_mr) == 72, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, isend) == 80, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, irecv) == 88, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, iflush) == 96, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, test) == 104, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, close_send) == 112, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, close_recv) == 120, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, close_listen) == 128, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, get_device_mr) == 136, "ncclNet_v7_t");
static_assert(offsetof(NetTableV7, irecv_consumed) == 144, "ncclNet_v7_t");

}  // extern "C"

// The device side of netDeviceType 1 (unpack): one queue a receive comm, in pinned host memory.
struct NetUnpackFragment {
  alignas(16) uint32_t src_off;  // into the bounce buffer
  uint32_t len;
  uint64_t dst_off;  // from the start of the request
};
static_assert(sizeof(NetUnpackFragment) == 16, "loadMeta");

constexpr int kNetUnpackSlots = 16;
constexpr int kNetUnpackFragments = 2048;

struct NetUnpackQueue {
  NetUnpackFragment mem[kNetUnpackSlots][kNetUnpackFragments];
  uint64_t cnt[kNetUnpackSlots];
};
static_assert(sizeof(NetUnpackQueue) == 524416, "netUnpackMeta");
static_assert(offsetof(NetUnpackQueue, cnt) == 524288, "netUnpackMeta");

struct NetUnpackDevice {  // what the device handle of accept points to
  NetUnpackQueue* meta;
  void* bounce_buf;
  uint64_t head;  // starts at 2^64 - 1
};
static_assert(sizeof(NetUnpackDevice) == 24, "unpack device handle");
