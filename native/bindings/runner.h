#pragma once

#include <optional>
#include <vector>

#include "engine/batch_loop.h"
#include "engine/connections.h"
#include "engine/program.h"
#include "engine/progress_thread.h"

namespace tcpx {

// What runs batches on a thread of its own: the engine, or a native baseline beside it.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual BatchLoop& loop() = 0;
  virtual void load(Program program, const SlotBase* buffers) = 0;
  virtual uint64_t most_chunk_bytes() const { return UINT32_MAX; }

  std::vector<BlockTable> blocks_ = std::vector<BlockTable>(kBuffers);
  std::optional<ProgressThread> thread_;  // a derived class makes it and ends it
};

}  // namespace tcpx
