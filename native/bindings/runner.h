#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/connections.h"
#include "engine/loop_team.h"
#include "engine/program.h"

namespace tcpx {

// What runs batches on threads of its own: the engine, or a native baseline beside it.
class Runner {
 public:
  virtual ~Runner() = default;
  // The part of each loop.
  virtual void load(std::vector<Program> programs, const SlotBase* buffers) = 0;
  virtual uint64_t most_chunk_bytes() const { return UINT32_MAX; }

  using Blocks = std::vector<BlockTable>;
  Blocks blocks_ = Blocks(kBuffers);
  // Of the row to come, whose iterations differ: those before its last.
  std::vector<std::pair<std::vector<int32_t>, Blocks>> turns_;
  std::optional<LoopTeam> team_;  // a derived class makes it and ends it
};

}  // namespace tcpx
