// Our narrow view of a net plugin: what the engine may ask of any plugin of any ABI version.
//
// The view has what the newest ABI has: size_t sizes, several receives in one call, a finalize. The
// context that newer versions hand from init to other calls is an adapter's own, a Net is one such
// context. One file an ABI version maps the view onto that version's table. An entry that a plugin
// leaves NULL is a value ("not offered"), never a crash. Each is looked at when it is called: some
// plugins fill their table only in init. The engine knows this view and nothing below it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "net/abi_v11.h"

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
  // Of newer versions; in those before, as here.
  int reg_is_global = 0;
  int force_flush = 0;
  std::vector<int> parts;  // devices that this one is made of
  size_t max_p2p_bytes = 0;
  size_t max_coll_bytes = 0;
  int max_multi_request = 0;
  int rail_id = -1;
  int plane_id = -1;
};

// The most receives that we ever pass in one call; NCCL's own limit is 8.
constexpr int kMaxReceives = 8;

// What irecv finds in `*request` from a caller that need not know when it is done (v9 on).
inline void* const kNetOptionalCompletion = reinterpret_cast<void*>(1);

// Every call returns the plugin's own code (0 success); the caller decides what a code means.
class Net {
 public:
  virtual ~Net() = default;

  virtual int abi() const = 0;
  virtual std::string name() const = 0;  // as it can be printed
  virtual bool offers_consumed() const = 0;
  virtual bool offers_device_mr() const = 0;
  virtual bool offers_dma_buf() const = 0;
  virtual size_t max_region_bytes() const = 0;  // the largest regMr that this ABI can express
  // The largest isend or irecv that it can.
  virtual size_t max_request_bytes() const { return std::numeric_limits<size_t>::max(); }
  // NCCL of this version begins once a communicator, each with a context; else once a process.
  virtual bool has_contexts() const { return false; }
  // Whether connections may have a traffic class (v10 on); before `init`, -1: none is asked for.
  virtual bool offers_traffic_class() const { return false; }
  virtual void set_traffic_class(int) {}
  // Entries that every plugin must have, in NCCL's spelling, that are NULL now.
  virtual std::vector<std::string> missing() const { return {}; }
  // Entries that a plugin may leave out, in NCCL's spelling, that are there now.
  virtual std::vector<std::string> extras() const { return {}; }

  virtual int init(NetLogger logger) = 0;
  virtual int finalize() = 0;
  virtual int devices(int* count) = 0;
  virtual int properties(int device, NetProperties* out) = 0;
  // The structure of this version as the plugin writes it, over what is there: NCCL hands it over
  // as it finds it.
  virtual size_t properties_bytes() const { return 0; }
  virtual int raw_properties(int, void*) { return kNetInvalidUsage; }

  virtual int listen(int device, void* handle, void** listen_comm) = 0;
  virtual int connect(int device, void* handle, void** send_comm, NetDeviceHandle** handle_out) = 0;
  virtual int accept(void* listen_comm, void** recv_comm, NetDeviceHandle** handle_out) = 0;
  virtual int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) = 0;
  virtual int reg_mr_dma_buf(void*, void*, size_t, int /*type*/, uint64_t /*offset*/, int /*fd*/,
                             void**) {
    return kNetInvalidUsage;
  }
  virtual int dereg_mr(void* comm, void* mhandle) = 0;
  virtual int get_device_mr(void*, void*, void**) { return kNetInvalidUsage; }

  virtual int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle,
                    void** request) = 0;
  virtual int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
                    void** request) = 0;
  virtual int iflush(void* comm, int n, void** data, int* bytes, void** mhandles,
                     void** request) = 0;
  virtual int test(void* request, int* done, int* bytes) = 0;
  virtual int irecv_consumed(void* comm, int n, void* request) = 0;

  // What isend and irecv pass on for a profiler of the plugin's; NULL until it is asked for (v10
  // on).
  void set_phandle(void* phandle) { phandle_ = phandle; }

  virtual int make_v_device(const std::vector<int>&, int*) { return kNetInvalidUsage; }
  virtual int set_net_attr(const NetAttributes&) { return kNetInvalidUsage; }

  virtual int close_send(void* comm) = 0;
  virtual int close_recv(void* comm) = 0;
  virtual int close_listen(void* comm) = 0;

 protected:
  void* phandle_ = nullptr;
};

std::unique_ptr<Net> make_net_v6(const void* table);
std::unique_ptr<Net> make_net_v7(const void* table);
std::unique_ptr<Net> make_net_v8(const void* table);
std::unique_ptr<Net> make_net_v9(const void* table);
std::unique_ptr<Net> make_net_v10(const void* table);
std::unique_ptr<Net> make_net_v11(const void* table);
std::unique_ptr<Net> make_net_v12(const void* table);

// "remote error".
const char* result_name(int code);
// "plugin call isend returned 6 (remote error)".
std::string returned_text(const std::string& call, int code);

}  // namespace tcpx
