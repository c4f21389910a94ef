// Version 10 of the table: a traffic class for connect, a profiler for init.
#include "net/abi_v10.h"
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV10 final : public ProfiledAdapter<NetTableV10, NetPropertiesV9> {
 public:
  using ProfiledAdapter::ProfiledAdapter;

  int abi() const override { return 10; }
  bool offers_traffic_class() const override { return true; }
  void set_traffic_class(int traffic_class) override { config_.traffic_class = traffic_class; }

  int init(NetLogger logger) override {
    return plugin_call::run("init", [&] { return table_->init(logger, note_profiler_event); });
  }
  int listen(int device, void* handle, void** listen_comm) override {
    return plugin_call::run("listen", [&] { return table_->listen(device, handle, listen_comm); });
  }
  int connect(int device, void* handle, void** send_comm, NetDeviceHandle** handle_out) override {
    return plugin_call::run("connect", [&] {
      return table_->connect(device, &config_, handle, send_comm, handle_out);
    });
  }

 private:
  NetCommConfig config_{-1};  // for as long as there are connections
};

}  // namespace

std::unique_ptr<Net> make_net_v10(const void* table) { return std::make_unique<NetV10>(table); }

}  // namespace tcpx
