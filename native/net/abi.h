// What all versions of the C interface of an NCCL network plugin share, as the plugin and its
// caller have it. One file a version has its table and its properties.
//
// These are our own declarations of a published binary layout; the static_asserts pin every size
// and offset, so that a slip here fails the build instead of corrupting a call.
#pragma once

#include <cstddef>
#include <cstdint>

#define TCPX_NET_AT(type, member, at) \
  static_assert(offsetof(type, member) == (at), #type "." #member)

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

struct NetDeviceHandle {
  int type;
  int version;
  void* handle;
  size_t size;
  int needs_proxy_progress;
};
static_assert(sizeof(NetDeviceHandle) == 32, "ncclNetDeviceHandle_v7_t, and later ones");
static_assert(offsetof(NetDeviceHandle, handle) == 8, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(NetDeviceHandle, size) == 16, "ncclNetDeviceHandle_v7_t");
static_assert(offsetof(NetDeviceHandle, needs_proxy_progress) == 24, "ncclNetDeviceHandle_v7_t");

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
