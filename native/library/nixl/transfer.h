// A request of NIXL's: what it moves, prepared once, and a post of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "library/nixl/abi.h"
#include "library/nixl/pump.h"
#include "library/nixl/wire.h"

namespace tcpx::nixl {

// A stretch of a region of this engine.
struct Here {
  std::shared_ptr<Region> region;
  uint64_t offset;
};

// What one frame asks for: as many segments as fit into one.
struct FrameContent {
  std::vector<Here> here;
  std::vector<Segment> there;
  std::vector<Message> messages;
  uint64_t bytes = 0;
};

struct Prepared {
  Operation operation;
  std::string remote;
  bool on_gpu = false;  // some memory of it, on either side
  std::vector<FrameContent> parts;
  uint64_t bytes = 0;
};

// A post. The engine writes it with its lock held; anybody reads the status.
struct Transfer {
  std::atomic<int> status{kInProgress};
  std::shared_ptr<const Prepared> prepared;
  size_t open_parts = 0;
  Status error = kSuccess;  // the first of its parts; told when all are over
  bool notifies = false;
  std::string notification;
  bool released = false;
};

class RequestHandle : public Request {
 public:
  std::shared_ptr<const Prepared> prepared;
  std::shared_ptr<Transfer> current;  // guarded by the engine's lock
};

}  // namespace tcpx::nixl
