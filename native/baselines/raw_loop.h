// The raw peer: the same program as the engine's, over plain sockets. A chunk is bytes on a stream,
// without header, request or window; what the kernel takes is sent, what it has is received.
#pragma once

#include <poll.h>

#include <vector>

#include "baselines/raw_links.h"
#include "engine/batch_loop.h"
#include "engine/connections.h"
#include "engine/program.h"

namespace tcpx {

class RawLoop : public BatchLoop {
 public:
  RawLoop(const RawLinks& links, int spins_before_yield);

  // The program of the row to come, compiled for as many channels as there are streams.
  void load(Program program, const SlotBase* buffers);

 private:
  struct Flow : FlowOps {
    using FlowOps::FlowOps;
    int fd = -1;
    uint64_t moved = 0;    // bytes of the chunk under way
    int64_t moved_ns = 0;  // when, on coarse_now()'s clock
    uint64_t completed = 0;
    uint64_t bytes = 0;
  };

  void begin_flows() override;
  bool sweep() override;
  void take_picture(FlowReport* picture) const override;
  void rest() override;

  bool advance(Flow& flow);
  bool move_bytes(Flow& flow, const ChunkOp& op);
  void complete(Flow& flow, const ChunkOp& op);

  const RawLinks& links_;
  const bool sleeps_;  // more ranks than cores: waiting for the kernel gives the core away
  std::vector<Flow> flows_;
  std::vector<std::vector<uint8_t>> staging_;  // by flow: a chunk that is reduced when it is whole
  std::vector<pollfd> waiting_;
};

}  // namespace tcpx
