#include "library/nixl/regions.h"

namespace tcpx::nixl {
namespace {

std::mt19937_64 seeded() {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  return std::mt19937_64(seed);
}

}  // namespace

Regions::Regions() : numbers_(seeded()) {}

std::shared_ptr<Region> Regions::add(uint8_t* data, uint64_t bytes, bool on_gpu) {
  uint64_t id;
  do {
    id = numbers_();
  } while (id == 0 || regions_.count(id) > 0);
  auto region = std::make_shared<Region>(*this, id, data, bytes, on_gpu);
  regions_.emplace(id, region);
  return region;
}

void Regions::remove(const Region& region) { regions_.erase(region.id); }

std::shared_ptr<Region> Regions::find(const Segment& segment, std::string* why) const {
  const auto found = regions_.find(segment.region);
  if (found == regions_.end()) {
    *why = "region " + std::to_string(segment.region) + " is not registered (any more)";
    return nullptr;
  }
  const uint64_t bytes = found->second->bytes;
  if (segment.offset > bytes || segment.bytes > bytes - segment.offset) {
    *why = std::to_string(segment.bytes) + " bytes at " + std::to_string(segment.offset) +
           " end beyond the " + std::to_string(bytes) + " that are registered";
    return nullptr;
  }
  return found->second;
}

}  // namespace tcpx::nixl
