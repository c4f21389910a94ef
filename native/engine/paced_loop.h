// The timed loop with sends that wait for their instant: iteration i of a batch is intended to
// begin i intervals after its start, and then does, whatever became of those before: their chunks
// are under way together, up to the window. A class of its own: a loop that is not paced asks for
// no instant.
#pragma once

#include <cstdint>

#include "engine/clock.h"
#include "engine/timed_loop.h"

namespace tcpx {

class PacedLoop final : public TimedLoop {
 public:
  using TimedLoop::TimedLoop;

  // Of the batches to come.
  void pace(double interval_ns) { interval_ns_ = interval_ns; }

 private:
  template <typename, typename>
  friend struct Flow;

  // As a feed. What waits for a receive of its iteration is an answer, and goes as soon as it can.
  // No send waits for the iteration before: each has a slot of its own in the batch.
  bool next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) {
    if (flow.kind != FlowKind::kSend) return TimedLoop::next(flow, chunk, posting);
    const Cursor& at = flow.source;
    if (at.iteration >= iterations() || !is_met(at)) return false;
    if (at.next_op().n_waits == 0 && now_ns() < intended(at.iteration)) return false;
    fill(flow, chunk, posting);
    return true;
  }
  // The same product is rounded alike by whoever reads the stamps.
  int64_t intended(uint64_t iteration) const {
    return stamps().start + static_cast<int64_t>(static_cast<double>(iteration) * interval_ns_);
  }
  bool sweep() override { return sweep_for(*this); }

  double interval_ns_ = 0;
};

}  // namespace tcpx
