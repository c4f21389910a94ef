// Version 7 of the table: `int` sizes, no context, no finalize.
#include <climits>

#include "net/logger.h"
#include "net/net.h"

namespace tcpx {
namespace {

// The most receives that we ever pass in one call; NCCL's own limit is 8.
constexpr int kMaxReceives = 8;

class NetV7 final : public Net {
 public:
  explicit NetV7(const NetTableV7* table) : table_(table) {}

  int abi() const override { return 7; }
  const char* name() const override { return table_->name != nullptr ? table_->name : "(unnamed)"; }
  bool offers_consumed() const override { return table_->irecv_consumed != nullptr; }
  bool offers_device_mr() const override { return table_->get_device_mr != nullptr; }
  bool offers_dma_buf() const override { return table_->reg_mr_dma_buf != nullptr; }
  size_t max_region_bytes() const override { return INT_MAX; }

  int init(NetLogger logger) override {
    plugin_log::begin_call();
    return table_->init(logger);
  }
  int finalize() override { return kNetSuccess; }
  int devices(int* count) override {
    plugin_log::begin_call();
    return table_->devices(count);
  }

  int properties(int device, NetProperties* out) override {
    plugin_log::begin_call();
    NetPropertiesV7 raw{};
    const int code = table_->get_properties(device, &raw);
    if (code != kNetSuccess) return code;
    out->name = raw.name != nullptr ? raw.name : "";
    out->pci_path = raw.pci_path != nullptr ? raw.pci_path : "";
    out->guid = raw.guid;
    out->ptr_support = raw.ptr_support;
    out->speed_mbps = raw.speed_mbps;
    out->port = raw.port;
    out->latency_us = raw.latency_us;
    out->max_comms = raw.max_comms;
    out->max_recvs = raw.max_recvs;
    out->device_type = raw.net_device_type;
    out->device_version = raw.net_device_version;
    out->max_request_bytes = size_t{1} << 30;
    return kNetSuccess;
  }

  int listen(int device, void* handle, void** listen_comm) override {
    plugin_log::begin_call();
    return table_->listen(device, handle, listen_comm);
  }
  int connect(int device, void* handle, void** send_comm, NetDeviceHandle** handle_out) override {
    plugin_log::begin_call();
    return table_->connect(device, handle, send_comm, handle_out);
  }
  int accept(void* listen_comm, void** recv_comm, NetDeviceHandle** handle_out) override {
    plugin_log::begin_call();
    return table_->accept(listen_comm, recv_comm, handle_out);
  }
  int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    plugin_log::begin_call();
    if (bytes > max_region_bytes()) return kNetInvalidArgument;
    return table_->reg_mr(comm, data, static_cast<int>(bytes), type, mhandle);
  }
  int dereg_mr(void* comm, void* mhandle) override { return table_->dereg_mr(comm, mhandle); }

  int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    return table_->isend(comm, data, static_cast<int>(bytes), tag, mhandle, request);
  }
  int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
            void** request) override {
    if (n < 1 || n > kMaxReceives) return kNetInvalidArgument;
    int narrow[kMaxReceives];
    for (int i = 0; i < n; ++i) narrow[i] = static_cast<int>(bytes[i]);
    return table_->irecv(comm, n, data, narrow, tags, mhandles, request);
  }
  int iflush(void* comm, int n, void** data, int* bytes, void** mhandles, void** request) override {
    return table_->iflush(comm, n, data, bytes, mhandles, request);
  }
  int test(void* request, int* done, int* bytes) override {
    return table_->test(request, done, bytes);
  }
  int irecv_consumed(void* comm, int n, void* request) override {
    if (table_->irecv_consumed == nullptr) return kNetSuccess;
    return table_->irecv_consumed(comm, n, request);
  }

  int close_send(void* comm) override { return table_->close_send(comm); }
  int close_recv(void* comm) override { return table_->close_recv(comm); }
  int close_listen(void* comm) override { return table_->close_listen(comm); }

 private:
  const NetTableV7* table_;
};

}  // namespace

std::unique_ptr<Net> make_net_v7(const void* table) {
  return std::make_unique<NetV7>(static_cast<const NetTableV7*>(table));
}

const char* result_name(int code) {
  switch (code) {
    case kNetSuccess:
      return "success";
    case kNetUnhandledCudaError:
      return "unhandled CUDA error";
    case kNetSystemError:
      return "system error";
    case kNetInternalError:
      return "internal error";
    case kNetInvalidArgument:
      return "invalid argument";
    case kNetInvalidUsage:
      return "invalid usage";
    case kNetRemoteError:
      return "remote error";
    case kNetInProgress:
      return "in progress";
    case kNetTimeout:
      return "timeout";
    default:
      return "unknown code";
  }
}

}  // namespace tcpx
