// Version 6 of the table: `int` sizes, no device side.
#include <climits>

#include "net/abi_v6.h"
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV6 final : public Adapter<NetTableV6, NetPropertiesV6> {
 public:
  using Adapter::Adapter;

  int abi() const override { return 6; }

  bool offers_consumed() const override { return false; }
  bool offers_device_mr() const override { return false; }

  int init(NetLogger logger) override {
    return plugin_call::run("init", [&] { return table_->init(logger); });
  }
  int listen(int device, void* handle, void** listen_comm) override {
    return plugin_call::run("listen", [&] { return table_->listen(device, handle, listen_comm); });
  }
  int connect(int device, void* handle, void** send_comm, NetDeviceHandle**) override {
    return plugin_call::run("connect", [&] { return table_->connect(device, handle, send_comm); });
  }
  int accept(void* listen_comm, void** recv_comm, NetDeviceHandle**) override {
    return plugin_call::run("accept", [&] { return table_->accept(listen_comm, recv_comm); });
  }
  int irecv_consumed(void*, int, void*) override { return kNetSuccess; }

  size_t max_region_bytes() const override { return INT_MAX; }
  int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    if (bytes > max_region_bytes()) return kNetInvalidArgument;
    return plugin_call::run("regMr", [&] {
      return table_->reg_mr(comm, data, static_cast<int>(bytes), type, mhandle);
    });
  }
  size_t max_request_bytes() const override { return INT_MAX; }
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

 private:
  void read_newer(const NetPropertiesV6&, NetProperties*) const override {}
};

}  // namespace

std::unique_ptr<Net> make_net_v6(const void* table) { return std::make_unique<NetV6>(table); }

}  // namespace tcpx
