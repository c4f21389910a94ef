#include "engine/batch_loop.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/signals.h"
#include "net/logger.h"
#include "reduce/reduce.h"

namespace tcpx {
namespace {

constexpr int64_t kStartSpinNs = 20'000;    // before the agreed start the core is kept
constexpr int64_t kStartSleepNs = 200'000;  // and this far ahead it need not even look
constexpr int kYieldsBeforeSleep = 16;      // where ranks share cores
constexpr long kSleepNs = 20'000;
constexpr uint32_t kSweepsPerLook = 32;  // between two looks at the clock, signals and flags

}  // namespace

void BatchLoop::set_row(Program program, const SlotBase* buffers) {
  program_ = std::move(program);
  armed_ = 0;
  std::copy(buffers, buffers + kBuffers, buffers_);
  own_counters_.assign(program_.counters, 0);
  counters_ = own_counters_.data();
  picture_.assign(program_.queues.size(), FlowReport{});
  reserve_sources();
  parts_.clear();
  for (const OpCounts& ops : program_.ops) {
    parts_.push_back({{ops[0], ops[1], ops[2]}, ops[0] + ops[1] + ops[2]});
  }
  if (parts_.empty()) parts_.push_back({});  // a program that was never compiled does nothing
}

void BatchLoop::reserve(uint64_t iterations) {
  left_.resize(iterations);
  stamps_.end.resize(iterations);
  stamps_.send_done.resize(iterations);
  stamps_.receive_done.resize(iterations);
  if (flushes_) stamps_.flush_begun.resize(iterations);
  reserve_sources();
}

void BatchLoop::reserve_sources() {
  stamps_.source_done.resize(left_.size() * program_.sources.size());
}

bool BatchLoop::run(const BatchPlan& plan) {
  if (failed_) return false;
  begin(plan);
  if (team_ == nullptr || team_->is_first()) plugin_log::set_quiet(true);
  wait_for_start(plan);
  uint32_t sweeps = 0;
  uint32_t idle_sweeps = 0;
  while (open_ < iterations_) {
    if (++sweeps % kSweepsPerLook == 0 && !look_around(plan)) break;
    const bool moved = team_ == nullptr ? sweep() : sweep_in_team();
    if (failed_) break;
    if (moved) {
      idle_sweeps = 0;
      moved_since_look_ = true;
      rests_ = 0;
    } else if (++idle_sweeps > static_cast<uint32_t>(spins_before_yield_)) {
      rest();
    }
  }
  note_cpu();
  heartbeat_.looked_ns.store(0, std::memory_order_relaxed);
  if (team_ == nullptr || team_->is_last()) plugin_log::set_quiet(false);
  return !failed_;
}

// Others may have ended an iteration since.
bool BatchLoop::sweep_in_team() {
  const uint64_t before = gate_;
  gate_ = team_->open();
  return sweep() || gate_ != before;
}

// A yield gives the core to a rank that is ready at once. If others compute, it comes back late
// each time: a rank that still finds nothing sleeps, and wakes ahead of them.
void BatchLoop::rest() {
  if (spins_before_yield_ > 0 || ++rests_ < kYieldsBeforeSleep) {
    sched_yield();
  } else {
    const timespec pause{0, kSleepNs};
    nanosleep(&pause, nullptr);
  }
}

void BatchLoop::arm(uint64_t iterations) {
  if (iterations > left_.size()) throw std::invalid_argument("batch longer than reserved");
  std::fill_n(left_.begin(), iterations, parts_.front());
  std::fill_n(stamps_.end.begin(), iterations, int64_t{-1});
  std::fill_n(stamps_.send_done.begin(), iterations, int64_t{-1});
  std::fill_n(stamps_.receive_done.begin(), iterations, int64_t{-1});
  std::fill(stamps_.flush_begun.begin(), stamps_.flush_begun.end(), int64_t{-1});
  std::fill_n(stamps_.source_done.begin(), iterations * program_.sources.size(), int64_t{-1});
  armed_ = iterations;
}

void BatchLoop::begin(const BatchPlan& plan) {
  if (armed_ != plan.iterations) arm(plan.iterations);
  armed_ = 0;
  first_slot_ = plan.first_slot;
  iterations_ = plan.iterations;
  open_ = gate_ = 0;
  pause_ends_ = 0;
  if (parts_.size() > 1) {  // a batch of few: each has a schedule of its own in memory
    for (uint64_t i = 0; i < iterations_; ++i) left_[i] = parts_[(first_slot_ + i) % parts_.size()];
  }
  pictured_ = false;
  cpus_seen_.fill(0);
  if (team_ == nullptr) std::fill(own_counters_.begin(), own_counters_.end(), 0);
  begin_flows();
}

void BatchLoop::wait_for_start(const BatchPlan& plan) {
  bool noted = !before_start_;
  const auto note = [&] {
    if (!noted) before_start_();
    noted = true;
  };
  if (plan.start_ns == 0) note();
  int64_t now = now_ns();
  while (now < plan.start_ns) {
    const int64_t left = plan.start_ns - now;
    if (left > kStartSleepNs) {  // other ranks of this host may need the core to get ready
      const timespec pause{0,
                           static_cast<long>(std::min<int64_t>(left, 500'000'000) - kStartSleepNs)};
      nanosleep(&pause, nullptr);
    } else if (left > kStartSpinNs) {
      sched_yield();
    } else {
      note();
    }
    now = now_ns();
  }
  note();  // a rank that comes late
  // Also a rank that was there in time and lost its core meanwhile.
  stamps_.late = plan.start_ns != 0 && now - plan.start_ns > kStartSpinNs;
  stamps_.start = plan.start_ns != 0 ? plan.start_ns : now;
  // Of a rank without a part in them, its first iterations are complete as they begin.
  end_iterations(stamps_.start);
  note_cpu();
  coarse_now_ = now;
  heartbeat_.looked_ns.store(now, std::memory_order_relaxed);
  last_progress_.store(now, std::memory_order_relaxed);
  if (team_ != nullptr) team_->note_progress(now);
  moved_since_look_ = false;
}

// What need not be seen at once: time, signals, requests of other threads. False ends the batch.
bool BatchLoop::look_around(const BatchPlan& plan) {
  note_cpu();
  coarse_now_ = now_ns();
  heartbeat_.looked_ns.store(coarse_now_, std::memory_order_relaxed);
  if (moved_since_look_) {
    last_progress_.store(coarse_now_, std::memory_order_relaxed);
    if (team_ != nullptr) team_->note_progress(coarse_now_);
  }
  moved_since_look_ = false;
  if (const int signal = stop_signal()) {
    fail(FaultKind::kInterrupted, signal);
  } else if (stop_requested_.load(std::memory_order_relaxed) ||
             (team_ != nullptr && team_->failed() != Team::kNone)) {
    fail(FaultKind::kStopped, 0);
  } else if (plan.end_by_ns != 0 && coarse_now_ > plan.end_by_ns) {
    fail(FaultKind::kTimeout, 0);
  } else if (coarse_now_ - last_progress() > plan.stall_ns &&
             watch::running_since(last_progress()) > plan.stall_ns) {
    Fault fault;
    fault.kind = FaultKind::kStall;
    fault.since_ns = last_progress();
    fail(fault);
  } else if (is_picture_wanted()) {
    take_picture(picture_.data());
    pictured_ = true;
    picture_ready_.store(true, std::memory_order_release);
  }
  return !failed_;
}

int64_t BatchLoop::stuck_ns() const {
  const int64_t looked = heartbeat_.looked_ns.load(std::memory_order_relaxed);
  return looked == 0 ? 0 : watch::running_since(looked);
}

// The loop is in a call and writes nothing meanwhile; should that return, the fault ends it.
void BatchLoop::give_up() {
  Fault fault = in_call();
  fault.since_ns = heartbeat_.looked_ns.load(std::memory_order_relaxed);
  request_stop();
  fail(fault);
}

bool BatchLoop::is_picture_wanted() {
  const bool asked = report_requested() && take_report_request();
  if (team_ == nullptr) return asked;
  if (asked) team_->ask_for_pictures();
  const uint32_t wanted = team_->pictures_asked_for();
  return std::exchange(pictures_seen_, wanted) != wanted;
}

// A loop may wait long for others of its rank that move.
int64_t BatchLoop::last_progress() const {
  return team_ == nullptr ? last_progress_.load(std::memory_order_relaxed) : team_->last_progress();
}

void BatchLoop::compute_chunk(const ChunkOp& op, uint64_t iteration) const {
  uint8_t* to = address(op.buffer, iteration, op.offset);
  const uint8_t* from = address(op.source_buffer, iteration, op.source);
  if (op.work == ChunkWork::kScale) {
    scale(program_.arithmetic, from, to, op.bytes);
  } else {
    memcpy(to, from, op.bytes);
  }
}

void BatchLoop::reduce_chunk(const ChunkOp& op, uint64_t iteration, const uint8_t* staging) const {
  reduce(program_.arithmetic, staging, address(op.source_buffer, iteration, op.source),
         address(op.buffer, iteration, op.offset), op.bytes);
}

void BatchLoop::note_cpu() {
  const auto cpu = static_cast<unsigned>(sched_getcpu());  // no system call
  if (cpu / 64 < cpus_seen_.size()) cpus_seen_[cpu / 64] |= uint64_t{1} << (cpu % 64);
}

void BatchLoop::fail(FaultKind kind, int code) {
  Fault fault;
  fault.kind = kind;
  fault.code = code;
  fail(fault);
}

void BatchLoop::fail(const Fault& fault) {
  if (failed_) return;  // the first fault of a sweep is the one that counts
  failed_ = true;
  if (team_ != nullptr) team_->fail(member_);
  fault_ = fault;
  coarse_now_ = now_ns();
  take_picture(picture_.data());
  pictured_ = true;
}

}  // namespace tcpx
