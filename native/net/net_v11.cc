// Version 11 of the table: a context from init to finalize.
#include "net/adapter.h"

namespace tcpx {
namespace {

class NetV11 final : public ContextAdapter<NetTableV11, NetPropertiesV11> {
 public:
  using ContextAdapter::ContextAdapter;

  int abi() const override { return 11; }
};

}  // namespace

std::unique_ptr<Net> make_net_v11(const void* table) { return std::make_unique<NetV11>(table); }

}  // namespace tcpx
