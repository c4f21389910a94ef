// Version 9 of the table: size_t sizes, and devices made of several.
#include "net/abi_v9.h"
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV9 final : public VirtualAdapter<NetTableV9, NetPropertiesV9> {
 public:
  using VirtualAdapter::VirtualAdapter;

  int abi() const override { return 9; }

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

  int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    return table_->isend(comm, data, bytes, tag, mhandle, request);
  }
  int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
            void** request) override {
    return table_->irecv(comm, n, data, bytes, tags, mhandles, request);
  }
};

}  // namespace

std::unique_ptr<Net> make_net_v9(const void* table) { return std::make_unique<NetV9>(table); }

}  // namespace tcpx
