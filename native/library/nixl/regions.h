// Memory that an engine has registered, by numbers that no other engine's metadata names by chance.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>

#include "library/nixl/wire.h"

namespace tcpx::nixl {

class Regions;

struct Region : std::enable_shared_from_this<Region> {
  Region(const Regions& owner, uint64_t number, uint8_t* at, uint64_t length, bool gpu)
      : registry(owner), id(number), data(at), bytes(length), on_gpu(gpu) {}
  const Regions& registry;  // which tells an engine its own from another's
  uint64_t id;
  uint8_t* data;
  uint64_t bytes;
  bool on_gpu;
  uint64_t path_id = 0;  // of the data path
  uint64_t users = 0;    // transfers under way, of either side
  bool gone = false;     // deregistered
};

// Guarded by the engine's lock.
class Regions {
 public:
  Regions();
  std::shared_ptr<Region> add(uint8_t* data, uint64_t bytes, bool on_gpu);
  void remove(const Region& region);
  bool has_made(const Region& region) const { return &region.registry == this; }
  // The region that has all of the segment. NULL: none has; `why` says what is wrong.
  std::shared_ptr<Region> find(const Segment& segment, std::string* why) const;
  const std::unordered_map<uint64_t, std::shared_ptr<Region>>& all() const { return regions_; }

 private:
  std::mt19937_64 numbers_;
  std::unordered_map<uint64_t, std::shared_ptr<Region>> regions_;
};

}  // namespace tcpx::nixl
