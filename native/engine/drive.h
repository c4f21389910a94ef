// The timed loop: one rank's part of a batch of iterations over its comms.
//
// It posts the heads of the queues of a program, tests the oldest request of each window, consumes
// what was received, in order, and stamps iterations. While it runs it allocates, logs, locks and
// formats nothing, and it calls nothing but the plugin and the clock. What went wrong is a record
// (Fault) and a picture of every flow (FlowReport), filled when it happens, put into words later.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/connections.h"
#include "engine/program.h"
#include "unpack/unpacker.h"

namespace tcpx {

struct DriveLimits {
  int window_send = 12;
  int window_receive = 16;
  int spins_before_yield = 0;  // idle sweeps before the core is offered to others
};

// Where the slots of one buffer lie: slot k begins at base + k * stride.
struct SlotBase {
  uint8_t* base = nullptr;
  size_t stride = 0;
};

enum class FaultKind : int {
  kNone = 0,
  kPlugin = 1,       // a call returned an error
  kStall = 2,        // no progress within the stall timeout
  kSize = 3,         // the plugin reported another size than was sent
  kInterrupted = 4,  // a signal
  kTimeout = 5,      // the total time of the run is over
  kStopped = 6,      // request_stop(): another rank met trouble
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  const char* call = "";  // of the plugin
  int code = 0;           // of the plugin, or the signal, or the reported size
  int flow = -1;
  uint64_t iteration = 0;  // in the batch
  uint32_t chunk = 0;
  uint32_t step = 0;
};

// One flow as it stood at one instant.
struct FlowReport {
  FlowKind kind;
  int peer;
  int lane;
  int channel;
  int window;
  uint64_t posted;
  uint64_t completed;
  uint64_t bytes;             // completed in this batch
  uint64_t oldest_iteration;  // of the oldest request that is not complete
  uint32_t oldest_step;
  uint32_t oldest_chunk;
  uint32_t oldest_bytes;
  int64_t oldest_age_ns;  // since it was posted; -1: nothing is posted
  bool finished;          // nothing left to do in this batch
};

struct BatchPlan {
  uint64_t first_slot = 0;
  uint64_t iterations = 0;
  int64_t start_ns = 0;   // agreed instant on now_ns()'s clock; 0: at once
  int64_t stall_ns = 0;   // patience with lack of progress
  int64_t end_by_ns = 0;  // instant after which the batch gives up; 0: never
};

// Nanoseconds on now_ns()'s clock, one entry an iteration; -1 where a rank has no such part.
struct BatchStamps {
  int64_t start = 0;  // of the batch: the agreed instant, also if this rank came late
  bool late = false;  // this rank missed the agreed instant
  std::vector<int64_t> end;
  std::vector<int64_t> send_done;
  std::vector<int64_t> receive_done;
};

class Driver {
 public:
  // `unpacker` puts receives together where the plugin scatters them; NULL: it delivers in place.
  Driver(Net& net, const Connections& connections, const DriveLimits& limits,
         Unpacker* unpacker = nullptr);

  // The program of the row to come. Throws std::invalid_argument where a comm or region is missing.
  void load(Program program, const SlotBase* buffers);

  // Room for the longest batch of the row.
  void reserve(uint64_t iterations);

  // Runs a batch; false after a fault, which stays: a driver that failed drives no more.
  bool run(const BatchPlan& plan);

  const BatchStamps& stamps() const { return stamps_; }
  const Fault& fault() const { return fault_; }

  // From another thread: ends the batch under way, and how long that has made no progress.
  void request_stop() { stop_requested_.store(true, std::memory_order_relaxed); }
  int64_t idle_ns() const;

  // The picture taken at the fault, or when a report was asked for while a batch ran.
  const std::vector<FlowReport>& picture() const { return picture_; }
  bool take_picture_ready() { return picture_ready_.exchange(false, std::memory_order_acquire); }

 private:
  struct Flow {
    FlowKind kind;
    int window = 0;
    void* comm = nullptr;
    const ChunkOp* ops = nullptr;
    uint32_t n_ops = 0;
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
  struct IterationLeft {
    uint32_t by_kind[3];
    uint32_t all;
  };

  void begin(const BatchPlan& plan);
  void wait_for_start(const BatchPlan& plan);
  bool advance(Flow& flow);
  bool advance_copies(Flow& flow);
  bool advance_unpacked(Flow& flow);
  bool test_head(Flow& flow);
  bool is_done(Flow& flow, uint64_t index, uint32_t op, uint64_t iteration);
  bool begin_unpack(Flow& flow);
  bool consume_head(Flow& flow);
  bool post_head(Flow& flow);
  bool may_post(const Flow& flow) const;
  void complete(Flow& flow);
  bool look_around(const BatchPlan& plan);
  void fail(FaultKind kind, int code);
  void fail_call(FaultKind kind, const char* call, int code, const Flow& flow, uint32_t op,
                 uint64_t iteration);
  void take_picture();
  uint8_t* address(int buffer, uint64_t iteration, uint64_t offset) const {
    return buffers_[buffer].base + (first_slot_ + iteration) * buffers_[buffer].stride + offset;
  }

  Net& net_;
  const Connections& connections_;
  DriveLimits limits_;
  Unpacker* unpacker_;
  Program program_;
  SlotBase buffers_[kBuffers];
  std::vector<Flow> flows_;
  std::vector<uint64_t> counters_;  // completed chunks, cumulative over the batch
  std::vector<IterationLeft> left_;
  BatchStamps stamps_;
  Fault fault_;
  std::vector<FlowReport> picture_;
  std::atomic<bool> picture_ready_{false};

  uint64_t first_slot_ = 0;
  uint64_t iterations_ = 0;
  uint64_t open_ = 0;  // the oldest iteration that is not complete
  bool failed_ = false;
  bool moved_since_look_ = false;
  uint32_t idle_sweeps_ = 0;
  int64_t coarse_now_ = 0;  // good to a few sweeps: for ages, never for results
  std::atomic<int64_t> last_progress_{0};
  std::atomic<bool> stop_requested_{false};
};

}  // namespace tcpx
