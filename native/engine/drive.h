// The timed loop: one rank's part of a batch of iterations over its comms.
//
// It posts the heads of the queues of a program, tests the oldest request of each window and
// consumes what was received, in order; BatchLoop stamps the iterations. It calls nothing but the
// plugin, the unpacker and the clock.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch_loop.h"
#include "engine/connections.h"
#include "engine/program.h"
#include "unpack/unpacker.h"

namespace tcpx {

struct DriveLimits {
  int window_send = 12;
  int window_receive = 16;
  int spins_before_yield = 0;  // idle sweeps before the core is offered to others
};

class Driver : public BatchLoop {
 public:
  // `unpacker` puts receives together where the plugin scatters them; NULL: it delivers in place.
  // `copier` moves what stays on this rank where the CPU cannot; NULL: it can.
  Driver(Net& net, const Connections& connections, const DriveLimits& limits,
         Unpacker* unpacker = nullptr, Unpacker* copier = nullptr);

  // The program of the row to come. Throws std::invalid_argument where a comm or region is missing.
  void load(Program program, const SlotBase* buffers);

 private:
  struct Flow : FlowOps {
    using FlowOps::FlowOps;
    int window = 0;
    void* comm = nullptr;
    uint32_t post_op = 0;  // next to post, and the iteration it belongs to
    uint32_t head_op = 0;  // oldest posted
    uint64_t post_iteration = 0;
    uint64_t head_iteration = 0;
    uint64_t posted = 0;
    uint64_t tested = 0;     // seen done; without an unpacker complete at the same time
    uint64_t completed = 0;  // in place and consumed
    uint64_t bytes = 0;
    const NetUnpackDevice* queue = nullptr;  // where the plugin lists fragments; NULL: in place
    uint64_t* sequence = nullptr;            // receives of the comm that were seen done, ever
    uint32_t test_op = 0;                    // of the request to be tested next, where unpacked
    uint64_t test_iteration = 0;
    const std::vector<void*>* mhandles = nullptr;  // [buffer][region]
    void* requests[kNetMaxRequests] = {};
    int64_t posted_at[kNetMaxRequests] = {};
    uint64_t tickets[kNetMaxRequests] = {};
  };

  void begin_flows() override;
  bool sweep() override;
  void take_picture(FlowReport* picture) const override;
  bool advance(Flow& flow);
  void note_posted(Flow& flow);
  bool advance_copies(Flow& flow);
  bool advance_unpacked(Flow& flow);
  bool test_head(Flow& flow);
  bool is_done(Flow& flow, uint64_t index, uint32_t op, uint64_t iteration);
  bool begin_unpack(Flow& flow);
  bool begin_copy(Flow& flow);
  void flush(Unpacker* unpacker);
  bool consume_head(Flow& flow);
  bool post_head(Flow& flow);
  bool may_post(const Flow& flow) const;
  void complete(Flow& flow);
  void fail_call(FaultKind kind, const char* call, int code, const Flow& flow, uint32_t op,
                 uint64_t iteration);

  Net& net_;
  const Connections& connections_;
  DriveLimits limits_;
  Unpacker* unpacker_;
  Unpacker* copier_;
  std::vector<Flow> flows_;
};

}  // namespace tcpx
