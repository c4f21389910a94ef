// Version 12 of the table: rails and planes.
#include "net/abi_v12.h"
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV12 final : public ContextAdapter<NetTableV12, NetPropertiesV12> {
 public:
  using ContextAdapter::ContextAdapter;

  int abi() const override { return 12; }

 private:
  void read_newer(const NetPropertiesV12& raw, NetProperties* out) const override {
    ContextAdapter::read_newer(raw, out);
    out->rail_id = raw.rail_id;
    out->plane_id = raw.plane_id;
  }
};

}  // namespace

std::unique_ptr<Net> make_net_v12(const void* table) { return std::make_unique<NetV12>(table); }

}  // namespace tcpx
