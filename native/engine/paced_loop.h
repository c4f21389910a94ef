// The timed loop with sends that wait for their instant: iteration i of a batch is intended to
// begin i intervals after its start, whatever became of those before. A class of its own: a loop
// that is not paced asks for no instant.
#pragma once

#include "engine/clock.h"
#include "engine/timed_loop.h"

namespace tcpx {

class PacedLoop final : public TimedLoop {
 public:
  PacedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits, Unpacker* unpacker,
            Unpacker* copier, int64_t interval_ns)
      : TimedLoop(net, connections, limits, unpacker, copier), interval_ns_(interval_ns) {}

 private:
  template <typename, typename>
  friend struct Flow;

  // As a feed. What waits for a receive of its iteration is an answer, and goes as soon as it can.
  bool next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) const {
    if (!TimedLoop::next(flow, chunk, posting)) return false;
    if (flow.kind != FlowKind::kSend || chunk.part.op->n_waits != 0) return true;
    const auto iteration = static_cast<int64_t>(chunk.part.iteration);
    return now_ns() >= stamps().start + iteration * interval_ns_;
  }
  bool sweep() override { return sweep_for(*this); }

  const int64_t interval_ns_;
};

}  // namespace tcpx
