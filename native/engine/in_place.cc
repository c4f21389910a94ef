#include "engine/in_place.h"

#include <cstdlib>
#include <string>

namespace tcpx {
namespace {

constexpr int kHopper = 9;

}  // namespace

bool needs_flush(const NetProperties& properties, const GpuFacts& gpu) {
  const char* forced = std::getenv("NCCL_NET_FORCE_FLUSH");
  return properties.device_type != kNetDeviceUnpack &&
         (properties.force_flush != 0 || (forced != nullptr && std::string(forced) == "1") ||
          gpu.major < kHopper);
}

bool takes_dma_buf(const Net& net, const NetProperties& properties, const GpuFacts& gpu) {
  return (properties.ptr_support & kNetPtrDmaBuf) != 0 && net.offers_dma_buf() && gpu.dma_buf;
}

}  // namespace tcpx
