// Version 7 of the table: `int` sizes, no context, no finalize.
#include <climits>

#include "net/abi_v7.h"
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV7 final : public DeviceAdapter<NetTableV7, NetPropertiesV7> {
 public:
  using DeviceAdapter::DeviceAdapter;

  int abi() const override { return 7; }

  int init(NetLogger logger) override {
    return plugin_call::run("init", [&] { return table_->init(logger); });
  }
  int listen(int device, void* handle, void** listen_comm) override {
    return plugin_call::run("listen", [&] { return table_->listen(device, handle, listen_comm); });
  }
  int connect(int device, void* handle, void** send_comm, NetDeviceHandle** handle_out) override {
    return plugin_call::run("connect",
                            [&] { return table_->connect(device, handle, send_comm, handle_out); });
  }
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
};

}  // namespace

std::unique_ptr<Net> make_net_v7(const void* table) { return std::make_unique<NetV7>(table); }

}  // namespace tcpx
