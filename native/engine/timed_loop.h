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
};

class TimedLoop : public BatchLoop {
 public:
  // `unpacker` puts receives together where the plugin scatters them; NULL: it delivers in place.
  // `copier` moves what stays on this rank where the CPU cannot; NULL: it can.
  TimedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits,
            Unpacker* unpacker = nullptr, Unpacker* copier = nullptr);

  // The program of the row to come; makes the staging that it needs. Throws std::invalid_argument
  // where a comm or region is missing, PluginError where staging cannot be registered.
  void load(Program program, const SlotBase* buffers);

 private:
  // The chunks of a queue, again in each iteration: which is to be posted next.
  struct Cursor : FlowOps {
    using FlowOps::FlowOps;
    uint32_t op = 0;
    uint64_t iteration = 0;
    // Where receives that are reduced land, by their place in the window; NULL: nowhere.
    uint8_t* staging = nullptr;
    size_t staging_stride = 0;
    void* staging_mhandle = nullptr;
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
  const Arithmetic& arithmetic() const { return program().arithmetic; }
  Operands operands(const Chunk<Part>& chunk) const;
  Net& net() { return net_; }
  int64_t now() const { return coarse_now(); }
  bool next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) const;
  void took(ScheduledFlow& flow, const Chunk<Part>& chunk);
  void finished(const ScheduledFlow& flow, const Chunk<Part>& chunk);
  void fail(const ScheduledFlow& flow, const Chunk<Part>& chunk, const FlowFault& fault);

  using BatchLoop::fail;
  void begin_flows() override;
  bool sweep() override;
  void take_picture(FlowReport* picture) const override;
  void use_comm(ScheduledFlow& flow, const ChunkQueue& queue);
  void use_staging(ScheduledFlow& flow, const ChunkQueue& queue);

  Net& net_;
  Connections& connections_;
  TimedLoopLimits limits_;
  Unpacker* unpacker_;
  Unpacker* copier_;
  std::vector<ScheduledFlow> flows_;
};

}  // namespace tcpx
