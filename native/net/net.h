// Our narrow view of a net plugin: what the engine may ask of any plugin of any ABI version.
//
// The view has what the newest ABI has: size_t sizes, several receives in one call, a finalize. The
// context that newer versions hand from init to other calls is an adapter's own, a Net is one such
// context. One file an ABI version maps the view onto that version's table. A slot that a plugin
// leaves NULL is a value ("not offered"), never a crash. The engine knows this view and nothing
// below it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "net/abi_v7.h"

namespace tcpx {

struct NetProperties {
  std::string name;
  std::string pci_path;  // empty: none
  uint64_t guid = 0;
  int ptr_support = 0;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_recvs = 1;
  int device_type = 0;
  int device_version = 0;
  size_t max_request_bytes = 0;  // the largest isend or irecv that this ABI can express
};

// Every call returns the plugin's own code (0 success); the caller decides what a code means.
class Net {
 public:
  virtual ~Net() = default;

  virtual int abi() const = 0;
  virtual const char* name() const = 0;
  virtual bool offers_consumed() const = 0;
  virtual bool offers_device_mr() const = 0;
  virtual bool offers_dma_buf() const = 0;
  virtual size_t max_region_bytes() const = 0;  // the largest regMr that this ABI can express

  virtual int init(NetLogger logger) = 0;
  virtual int finalize() = 0;
  virtual int devices(int* count) = 0;
  virtual int properties(int device, NetProperties* out) = 0;

  virtual int listen(int device, void* handle, void** listen_comm) = 0;
  virtual int connect(int device, void* handle, void** send_comm, NetDeviceHandle** handle_out) = 0;
  virtual int accept(void* listen_comm, void** recv_comm, NetDeviceHandle** handle_out) = 0;
  virtual int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) = 0;
  virtual int dereg_mr(void* comm, void* mhandle) = 0;

  virtual int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle,
                    void** request) = 0;
  virtual int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
                    void** request) = 0;
  virtual int iflush(void* comm, int n, void** data, int* bytes, void** mhandles,
                     void** request) = 0;
  virtual int test(void* request, int* done, int* bytes) = 0;
  virtual int irecv_consumed(void* comm, int n, void* request) = 0;

  virtual int close_send(void* comm) = 0;
  virtual int close_recv(void* comm) = 0;
  virtual int close_listen(void* comm) = 0;
};

std::unique_ptr<Net> make_net_v7(const void* table);

// Names of the plugin result codes, for messages.
const char* result_name(int code);

}  // namespace tcpx
