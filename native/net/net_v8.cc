// Version 8 of the table: registrations have a size_t size.
#include <climits>

#include "net/abi_v8.h"
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV8 final : public DeviceAdapter<NetTableV8, NetPropertiesV8> {
 public:
  using DeviceAdapter::DeviceAdapter;

  int abi() const override { return 8; }

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
  size_t max_region_bytes() const override { return std::numeric_limits<size_t>::max(); }
  int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    return plugin_call::run("regMr",
                            [&] { return table_->reg_mr(comm, data, bytes, type, mhandle); });
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
  void read_newer(const NetPropertiesV8& raw, NetProperties* out) const override {
    DeviceAdapter::read_newer(raw, out);
    out->reg_is_global = raw.reg_is_global;
  }
};

}  // namespace

std::unique_ptr<Net> make_net_v8(const void* table) { return std::make_unique<NetV8>(table); }

}  // namespace tcpx
