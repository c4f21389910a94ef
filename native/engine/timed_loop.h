// The timed loop: one rank's part of a batch of iterations over its comms.
//
// It feeds the flows from the queues of a program; BatchLoop stamps the iterations. It calls
// nothing but the plugin, the unpacker, the reduction and the clock.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch_loop.h"
#include "engine/connections.h"
#include "engine/flow.h"
#include "engine/program.h"
#include "unpack/unpacker.h"

namespace tcpx {

struct TimedLoopLimits {
  int window_send = 12;
  int window_receive = 16;
  int spins_before_yield = 0;  // idle sweeps before the core is offered to others
  bool flushes = false;  // receives into buffers of CUDA pointers, where the plugin puts them there
};

class TimedLoop : public BatchLoop {
 public:
  // `unpacker` puts receives together where the plugin scatters them; NULL: it delivers in place.
  // `copier` moves what stays on this rank where the CPU cannot; NULL: it can.
  TimedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits,
            Unpacker* unpacker = nullptr, Unpacker* copier = nullptr);

  // The program of the row to come; makes the staging that it needs. Throws std::invalid_argument
  // where a comm or region is missing, PluginError if staging cannot be registered.
  virtual void load(Program program, const SlotBase* buffers);

 protected:
  // The chunks of a queue: which is to be posted next.
  struct Cursor : FlowOps {
    using FlowOps::FlowOps;
    // Where receives that are reduced land, by their place in the window; NULL: nowhere.
    uint8_t* staging = nullptr;
    size_t staging_stride = 0;
    void* staging_mhandle = nullptr;
    uint32_t flushed_buffers = 0;  // a bit each: what lands there is visible when it is flushed
  };
  struct Part {
    const ChunkOp* op;
    uint64_t iteration;
  };
  using ScheduledFlow = Flow<Cursor, Part>;
  template <typename, typename>
  friend struct Flow;

  // As a feed.
  static constexpr bool kComputes = true;
  static constexpr bool kTraces = false;
  static constexpr bool kGroups = false;
  const Arithmetic& arithmetic() const { return program().arithmetic; }
  Operands operands(const Chunk<Part>& chunk) const;
  bool pause_over(const Chunk<Part>& chunk) { return BatchLoop::pause_over(*chunk.part.op); }
  Net& net() { return net_; }
  int64_t now() const { return coarse_now(); }
  bool next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) const;
  void took(ScheduledFlow& flow, const Chunk<Part>& chunk);
  void finished(const ScheduledFlow& flow, const Chunk<Part>& chunk);
  void fail(const ScheduledFlow& flow, const Chunk<Part>& chunk, const FlowFault& fault);
  void calls(const ScheduledFlow& flow, watch::InCall call) { heartbeat().enter(&flow, call); }
  void flushes(const Chunk<Part>& chunk) { note_flush(chunk.part.iteration); }

  // The chunk to be posted next, which may be.
  void fill(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) const;
  using BatchLoop::fail;
  void begin_flows() override;
  bool sweep() override;
  void take_picture(FlowReport* picture) const override;
  Fault in_call() const override;
  // `feed`: this, as the class that it is.
  template <typename Feed>
  bool sweep_for(Feed& feed) {
    bool moved = false;
    for (ScheduledFlow& flow : flows_) {
      heartbeat().enter(&flow, watch::InCall::kTest);
      moved |= flow.advance(feed);
      if (failed()) break;  // a comm that failed may have taken others along: no further call
    }
    flush_movers();
    return moved;
  }
  std::vector<ScheduledFlow> flows_;

 private:
  void flush_movers();
  void use_comm(ScheduledFlow& flow, const ChunkQueue& queue);
  void use_staging(ScheduledFlow& flow, const ChunkQueue& queue);

  Net& net_;
  Connections& connections_;
  TimedLoopLimits limits_;
  Unpacker* unpacker_;
  Unpacker* copier_;
};

inline bool TimedLoop::next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) const {
  if (!may_begin(flow.source)) return false;
  fill(flow, chunk, posting);
  return true;
}

inline void TimedLoop::fill(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) const {
  const Cursor& at = flow.source;
  const ChunkOp& op = at.next_op();
  chunk.data = address(op.buffer, at.iteration, op.offset);
  chunk.bytes = op.bytes;
  chunk.scattered = flow.queue != nullptr;
  chunk.flushes = (at.flushed_buffers >> op.buffer & 1) != 0 && op.bytes > 0;
  chunk.work = op.work;
  chunk.part = {&op, at.iteration};
  // Only a flow of receives that are reduced has staging.
  if (at.staging != nullptr && op.work == ChunkWork::kReduce) {
    chunk.data = at.staging + flow.posted % flow.window * at.staging_stride;
    posting.mhandle = at.staging_mhandle;
    return;
  }
  if (flow.kind == FlowKind::kCopy) {
    if (op.work == ChunkWork::kPause) return;
    posting.source = address(op.source_buffer, at.iteration, op.source);
  } else {
    const uint64_t offset = slot_start(op.buffer, at.iteration) + op.offset;
    posting.mhandle = flow.comm->mhandles[op.buffer][offset >> kRegionShift];
  }
}

inline Operands TimedLoop::operands(const Chunk<Part>& chunk) const {
  const ChunkOp& op = *chunk.part.op;
  return {address(op.source_buffer, chunk.part.iteration, op.source),
          address(op.buffer, chunk.part.iteration, op.offset)};
}

inline void TimedLoop::took(ScheduledFlow& flow, const Chunk<Part>&) {
  flow.source.step(iterations());
}

inline void TimedLoop::finished(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
  finish_chunk(flow.source, *chunk.part.op, chunk.part.iteration);
}

}  // namespace tcpx
