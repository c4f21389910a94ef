#include "engine/traced_loop.h"

#include <utility>

namespace tcpx {

TracedLoop::TracedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits,
                       Unpacker* unpacker, Unpacker* copier, size_t most)
    : TimedLoop(net, connections, limits, unpacker, copier), kept_(most) {}

void TracedLoop::load(Program program, const SlotBase* buffers) {
  TimedLoop::load(std::move(program), buffers);
  stamped_.assign(flows_.size(), Stamped{});
  for (size_t i = 0; i < flows_.size(); ++i) {
    const Comm* comm = flows_[i].comm;
    stamped_[i].posts = comm != nullptr ? &posts_[comm] : &copies_;
    for (ChunkTrace& chunk : stamped_[i].chunks) {
      const ChunkQueue& queue = this->program().queues[i];
      chunk.kind = static_cast<int64_t>(queue.kind);
      chunk.peer = queue.peer;
      chunk.lane = queue.lane;
      chunk.channel = queue.channel;
      chunk.comm = comm != nullptr ? reinterpret_cast<int64_t>(comm->comm) : 0;
    }
  }
}

void TracedLoop::begin_flows() {
  kept_.clear();
  TimedLoop::begin_flows();
}

bool TracedLoop::sweep() {
  const bool moved = sweep_for(*this);
  stamp_launches();
  return moved;
}

// What the GPU was told of in this sweep. The CPU has nothing left to do by then.
void TracedLoop::stamp_launches() {
  for (ScheduledFlow& flow : flows_) {
    for (uint64_t k = flow.finished; k != flow.tested; ++k) {
      const Chunk<Part>& chunk = flow.chunks[k % kNetMaxRequests];
      ChunkTrace& trace = stamped(flow, chunk);
      if (chunk.state == ChunkState::kMoving && trace.launched < 0) trace.launched = now_ns();
    }
  }
}

inline bool TracedLoop::next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) {
  if (!TimedLoop::next(flow, chunk, posting)) return false;
  stamped(flow, chunk).post = now_ns();
  return true;
}

inline void TracedLoop::took(ScheduledFlow& flow, const Chunk<Part>& chunk) {
  ChunkTrace& trace = stamped(flow, chunk);
  trace.posted = now_ns();
  trace.done = trace.flushed = trace.launched = trace.unpacked = -1;
  trace.iteration = static_cast<int64_t>(chunk.part.iteration);
  trace.step = chunk.part.op->step;
  trace.chunk = chunk.part.op->chunk;
  trace.bytes = chunk.bytes;
  trace.work = static_cast<int64_t>(chunk.work);
  trace.message = (*stamped_[&flow - flows_.data()].posts)++;
  TimedLoop::took(flow, chunk);
}

inline void TracedLoop::finished(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
  ChunkTrace& trace = stamped(flow, chunk);
  trace.finished = now_ns();
  kept_.add(trace);
  TimedLoop::finished(flow, chunk);
}

}  // namespace tcpx
