// When each step of a chunk's life was, as a traced loop saw it, and what keeps the last
// of them. Whoever prints them knows the plugin's connections by the same `comm` and `message`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tcpx {

// All of one type, so that it is a table. Instants are of now_ns(); -1: there was no such step.
struct ChunkTrace {
  int64_t iteration = 0;  // in the batch
  int64_t step = 0;
  int64_t chunk = 0;
  int64_t kind = 0;  // FlowKind
  int64_t peer = 0;
  int64_t lane = 0;
  int64_t channel = 0;
  int64_t bytes = 0;
  int64_t comm = 0;       // the plugin's pointer as a number; 0: a copy within the rank
  int64_t message = -1;   // posts of that comm before this one
  int64_t post = -1;      // the call that posts begins
  int64_t posted = -1;    // and has returned
  int64_t done = -1;      // the plugin says that it is
  int64_t flushed = -1;   // its flush is over, which began at `done`
  int64_t launched = -1;  // a GPU has been told to unpack it
  int64_t unpacked = -1;  // that is seen to be over
  int64_t finished = -1;  // in place and consumed
  int64_t work = 0;       // ChunkWork: a receive may be reduced on its way
};
constexpr size_t kTraceColumns = sizeof(ChunkTrace) / sizeof(int64_t);
static_assert(kTraceColumns == 18, "tcpx_mpi/records/trace.py names them");

// The last of a batch, in room that is there from the start.
class LastTraces {
 public:
  explicit LastTraces(size_t most) : kept_(most) {}

  void clear() { added_ = 0; }
  void add(const ChunkTrace& chunk) { kept_[added_++ % kept_.size()] = chunk; }
  // Oldest first. Not in the hot path.
  std::vector<ChunkTrace> last() const {
    std::vector<ChunkTrace> found;
    const size_t first = added_ > kept_.size() ? added_ - kept_.size() : 0;
    for (size_t i = first; i < added_; ++i) found.push_back(kept_[i % kept_.size()]);
    return found;
  }

 private:
  std::vector<ChunkTrace> kept_;
  size_t added_ = 0;
};

}  // namespace tcpx
