// The timed loop with a stamp at each step of the last chunks. A class of its own: a loop that is
// not traced has none of this, not even a question whether it is.
#pragma once

#include <map>

#include "engine/chunk_trace.h"
#include "engine/clock.h"
#include "engine/timed_loop.h"

namespace tcpx {

class TracedLoop final : public TimedLoop {
 public:
  // As TimedLoop; `most` chunks of a batch are kept, the last ones.
  TracedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits, Unpacker* unpacker,
             Unpacker* copier, size_t most);

  void load(Program program, const SlotBase* buffers) override;
  std::vector<ChunkTrace> trace() const override { return kept_.last(); }

 private:
  template <typename, typename>
  friend struct Flow;
  // Of one flow: what its chunks are stamped with, by their place in the window.
  struct Stamped {
    ChunkTrace chunks[kNetMaxRequests];
    int64_t* posts;  // of its comm, since that came up
  };

  // As a feed.
  static constexpr bool kTraces = true;
  bool next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting);
  void took(ScheduledFlow& flow, const Chunk<Part>& chunk);
  void done(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
    stamped(flow, chunk).done = now_ns();
  }
  void visible(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
    stamped(flow, chunk).flushed = now_ns();
  }
  void in_place(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
    stamped(flow, chunk).unpacked = now_ns();
  }
  void finished(const ScheduledFlow& flow, const Chunk<Part>& chunk);

  void begin_flows() override;
  bool sweep() override;
  void stamp_launches();
  ChunkTrace& stamped(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
    return stamped_[&flow - flows_.data()].chunks[&chunk - flow.chunks];
  }

  LastTraces kept_;
  std::vector<Stamped> stamped_;          // by flow
  std::map<const Comm*, int64_t> posts_;  // their addresses stay
  int64_t copies_ = 0;                    // counts for flows without a comm
};

}  // namespace tcpx
