// The frame of a batch: start together, sweep over the flows until every iteration is complete,
// stamp iterations, give up for a reason. What a sweep does is a driver's own affair; what is
// stamped, and by which rule, is the same for all of them.
//
// While it runs a batch it allocates, logs, locks and formats nothing. What went wrong is a record
// (Fault) and a picture of every flow (FlowReport), filled when it happens, put into words later.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/chunk_trace.h"
#include "engine/clock.h"
#include "engine/flow_report.h"
#include "engine/program.h"
#include "engine/team.h"
#include "engine/watch.h"

namespace tcpx {

// Where the slots of one buffer lie: slot k begins at base + k * stride.
struct SlotBase {
  uint8_t* base = nullptr;
  size_t stride = 0;
};

struct Fault : FlowFault {
  int flow = -1;
  uint64_t iteration = 0;  // in the batch
  uint32_t step = 0;
};

struct FlowReport : FlowPicture {
  int peer = 0;
  int lane = 0;
  uint64_t oldest_iteration = 0;
  uint32_t oldest_step = 0;
  bool finished = false;  // nothing left to do in this batch
};

struct BatchPlan {
  uint64_t first_slot = 0;
  uint64_t iterations = 0;
  int64_t start_ns = 0;   // agreed instant on now_ns()'s clock; 0: at once
  int64_t stall_ns = 0;   // patience with lack of progress
  int64_t end_by_ns = 0;  // instant after which the batch gives up; 0: never
};

// Nanoseconds on now_ns()'s clock, one entry an iteration; -1 if a rank has no such part.
struct BatchStamps {
  int64_t start = 0;  // of the batch: the agreed instant, also if this rank came late
  bool late = false;  // this rank missed the agreed instant
  std::vector<int64_t> end;
  std::vector<int64_t> send_done;
  std::vector<int64_t> receive_done;
  std::vector<int64_t> flush_begun;  // of the last receive; empty where none is flushed
  // By iteration and source of the program: when the last of its bytes were there.
  std::vector<int64_t> source_done;
};

// CPUs by number, as many as a kernel may have here.
using CpuBits = std::array<uint64_t, 64>;

class BatchLoop {
 public:
  explicit BatchLoop(int spins_before_yield, bool flushes = false)
      : flushes_(flushes), spins_before_yield_(spins_before_yield) {}
  virtual ~BatchLoop() = default;
  BatchLoop(const BatchLoop&) = delete;
  BatchLoop& operator=(const BatchLoop&) = delete;

  // Before anything else: one of several loops that run the batches of a rank together.
  void join(Team* team, size_t member) {
    team_ = team;
    member_ = member;
  }
  // Of the row's whole program.
  size_t counters() const { return program_.counters; }
  void use_team_counters() { counters_ = team_->counters(); }

  // Room for the longest batch of the row.
  void reserve(uint64_t iterations);

  // Readies the stamps of the next batch, which takes milliseconds for a million iterations: not
  // between the instant that ranks agreed on and their start. A batch that was not armed is, first.
  void arm(uint64_t iterations);

  // Runs a batch; false after a fault, which stays: a loop that failed runs no more.
  bool run(const BatchPlan& plan);

  // Called in each batch on the thread that runs it, at most 20 us before its start. What is
  // counted of a batch begins there; waiting for others is no part of it.
  void before_start(std::function<void()> note) { before_start_ = std::move(note); }

  const BatchStamps& stamps() const { return stamps_; }
  // The last chunks of the last batch, where the loop is traced.
  virtual std::vector<ChunkTrace> trace() const { return {}; }
  const std::vector<int>& sources() const { return program_.sources; }
  const std::vector<int>& source_lanes() const { return program_.source_lanes; }
  const Fault& fault() const { return fault_; }
  // Where the driving thread was seen in the last batch; looked at now and then.
  const CpuBits& cpus_seen() const { return cpus_seen_; }

  // From another thread: ends the batch under way, and how long that has made no progress.
  void request_stop() { stop_requested_.store(true, std::memory_order_relaxed); }
  int64_t idle_ns() const { return now_ns() - last_progress_.load(std::memory_order_relaxed); }
  // How long it has not looked around in a batch that is under way: it is in a call of the plugin.
  int64_t stuck_ns() const;
  // From another thread, about a loop that is stuck: its fault is that, and it is never run again.
  void give_up();

  // The picture taken at the fault, or when a report was asked for while a batch ran.
  const std::vector<FlowReport>& picture() const { return picture_; }
  bool has_picture() const { return pictured_; }
  bool is_picture_ready() const { return picture_ready_.load(std::memory_order_acquire); }
  bool take_picture_ready() { return picture_ready_.exchange(false, std::memory_order_acquire); }

 protected:
  // What a flow of any driver walks: the chunks of its queue that each iteration has.
  struct FlowOps {
    explicit FlowOps(const ChunkQueue& queue)
        : kind(queue.kind),
          source(queue.source),
          ops(queue.ops.data()),
          begins(queue.begins.data()),
          turns(static_cast<uint32_t>(queue.begins.size() - 1)) {}

    // To the first chunk of a batch whose first slot is this one.
    void rewind(uint64_t first_slot, uint64_t iterations) {
      turn = static_cast<uint32_t>(first_slot % turns);
      iteration = round = 0;
      open_turn(iterations);
    }
    // One chunk on.
    void step(uint64_t iterations) {
      if (++next != end) return;
      next_turn();
      open_turn(iterations);
    }
    const ChunkOp& next_op() const { return *next; }

    FlowKind kind;
    int source;
    const ChunkOp* ops;
    const uint32_t* begins;
    uint32_t turns;
    // Which chunk is next, in which iteration, before which its turn had so many.
    const ChunkOp* next = nullptr;
    const ChunkOp* end = nullptr;
    uint32_t turn = 0;
    uint64_t iteration = 0;
    uint64_t round = 0;

   private:
    void next_turn() {
      ++iteration;
      if (++turn < turns) return;
      turn = 0;
      ++round;
    }
    // Iterations in which it has no chunk are passed over; behind the batch any will do.
    void open_turn(uint64_t iterations) {
      while (begins[turn] == begins[turn + 1] && iteration < iterations) next_turn();
      next = ops + (iteration < iterations ? begins[turn] : 0);
      end = ops + begins[turn + 1];
    }
  };

  // The row to come; flows are then made of program().queues, whose chunks stay where they are.
  void set_row(Program program, const SlotBase* buffers);
  const Program& program() const { return program_; }

  virtual void begin_flows() = 0;
  virtual bool sweep() = 0;  // once over all flows; true if anything moved
  virtual void take_picture(FlowReport* picture) const = 0;  // one report a flow
  // Of a loop that is stuck: the call that it is in, of which message.
  virtual Fault in_call() const { return Fault{{FaultKind::kHang}}; }
  // Many sweeps moved nothing: offers the core to others.
  virtual void rest();

  // A chunk of an iteration is complete.
  void finish_chunk(const FlowOps& flow, const ChunkOp& op, uint64_t iteration) {
    // Written by this thread alone, read by all of the rank.
    uint64_t& counter = counters_[op.counter];
    __atomic_store_n(&counter, counter + 1, __ATOMIC_RELEASE);
    if (flow.source >= 0 && op.last) note_source(flow.source, iteration);
    finish_part(flow.kind, iteration);
  }
  void note_flush(uint64_t iteration) { stamps_.flush_begun[iteration] = now_ns(); }
  void fail(FaultKind kind, int code);
  void fail(const Fault& fault);

  // Receives of later iterations have slots of their own and may be posted early; whatever reads or
  // sends begins when the iteration before is complete.
  bool may_begin(const FlowOps& flow) const {
    return flow.iteration < iterations_ &&
           (flow.kind == FlowKind::kReceive || flow.iteration <= gate_) && is_met(flow);
  }
  // All that the next chunk waits for in its own iteration.
  bool is_met(const FlowOps& flow) const {
    return waits_met(program_, counters_, flow.next_op(), flow.round);
  }

  // Of a pause that may begin, or has begun: whether it is over. All are of one flow, in order.
  bool pause_over(const ChunkOp& op) {
    const int64_t now = now_ns();
    if (pause_ends_ == 0) pause_ends_ = now + static_cast<int64_t>(op.source);
    if (now < pause_ends_) return false;
    pause_ends_ = 0;
    return true;
  }
  bool pauses() const { return pause_ends_ != 0; }

  // Where a chunk's bytes are in the slot of an iteration of this batch.
  uint8_t* address(int buffer, uint64_t iteration, uint64_t offset) const {
    return buffers_[buffer].base + slot_start(buffer, iteration) + offset;
  }
  uint64_t slot_start(int buffer, uint64_t iteration) const {
    return (first_slot_ + iteration) * buffers_[buffer].stride;
  }
  // By the CPU: a copy or scaling within this rank's memory; what was received into `staging`,
  // reduced with its local operand.
  void compute_chunk(const ChunkOp& op, uint64_t iteration) const;
  void reduce_chunk(const ChunkOp& op, uint64_t iteration, const uint8_t* staging) const;

  uint64_t iterations() const { return iterations_; }
  uint64_t first_slot() const { return first_slot_; }
  uint64_t open() const { return open_; }  // the oldest iteration that is not complete
  bool failed() const { return failed_; }
  watch::Heartbeat& heartbeat() { return heartbeat_; }
  const watch::Heartbeat& heartbeat() const { return heartbeat_; }
  int64_t coarse_now() const { return coarse_now_; }

 private:
  struct IterationLeft {
    uint32_t by_kind[3];
    uint32_t all;
  };

  void begin(const BatchPlan& plan);
  bool sweep_in_team();
  bool is_picture_wanted();
  int64_t last_progress() const;
  void wait_for_start(const BatchPlan& plan);
  bool look_around(const BatchPlan& plan);
  void note_cpu();
  void end_iterations(int64_t at);
  void finish_part(FlowKind kind, uint64_t iteration);
  // Of several flows from a source the last one to write is the last one to finish.
  void note_source(int source, uint64_t iteration) {
    stamps_.source_done[iteration * program_.sources.size() + static_cast<size_t>(source)] =
        now_ns();
  }
  void reserve_sources();

  std::function<void()> before_start_;
  const bool flushes_;            // some receives, perhaps
  const int spins_before_yield_;  // idle sweeps before the core is offered; 0: ranks share cores
  Program program_;
  SlotBase buffers_[kBuffers];
  std::vector<uint64_t> own_counters_;
  uint64_t* counters_ = nullptr;  // completed chunks, cumulative over the batch; perhaps a team's
  Team* team_ = nullptr;          // none: this loop alone
  size_t member_ = 0;
  std::vector<IterationLeft> parts_;  // by turn
  std::vector<IterationLeft> left_;
  BatchStamps stamps_;
  Fault fault_;
  std::vector<FlowReport> picture_;
  std::atomic<bool> picture_ready_{false};
  bool pictured_ = false;  // in this batch
  uint32_t pictures_seen_ = 0;
  CpuBits cpus_seen_{};

  uint64_t first_slot_ = 0;
  uint64_t armed_ = 0;  // iterations of the next batch that are ready
  uint64_t iterations_ = 0;
  uint64_t open_ = 0;
  uint64_t gate_ = 0;       // what sends and reads may begin: `open_`, of all loops of the rank
  int64_t pause_ends_ = 0;  // of the one under way; 0: none is
  bool failed_ = false;
  bool moved_since_look_ = false;
  int rests_ = 0;           // since anything moved
  int64_t coarse_now_ = 0;  // good to a few sweeps: for ages, never for results
  std::atomic<int64_t> last_progress_{0};
  watch::Heartbeat heartbeat_;
  const watch::Watched watched_{heartbeat_, "in a batch"};
  std::atomic<bool> stop_requested_{false};
};

inline void BatchLoop::finish_part(FlowKind kind, uint64_t iteration) {
  IterationLeft& left = left_[iteration];
  const bool last_of_kind = --left.by_kind[static_cast<int>(kind)] == 0;
  --left.all;
  if (!last_of_kind) return;
  const int64_t now = now_ns();
  if (kind == FlowKind::kSend) stamps_.send_done[iteration] = now;
  if (kind == FlowKind::kReceive) stamps_.receive_done[iteration] = now;
  end_iterations(now);
}

// Those of which nothing is left.
inline void BatchLoop::end_iterations(int64_t at) {
  while (open_ < iterations_ && left_[open_].all == 0) stamps_.end[open_++] = at;
  if (team_ == nullptr) {
    gate_ = open_;
  } else {
    team_->publish(member_, open_);
  }
}

}  // namespace tcpx
