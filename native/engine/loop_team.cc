#include "engine/loop_team.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tcpx {
namespace {

void take_latest(std::vector<int64_t>& into, const std::vector<int64_t>& other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace

std::vector<Program> split(Program whole, size_t parts) {
  std::vector<Program> programs(parts);
  for (Program& part : programs) {
    part.waits = whole.waits;
    part.arithmetic = whole.arithmetic;
    part.sources = whole.sources;
    part.source_lanes = whole.source_lanes;
    part.counters = whole.counters;
    part.ops.resize(whole.turns());
  }
  for (ChunkQueue& queue : whole.queues) {
    const auto place = static_cast<size_t>(queue.channel + std::max(queue.peer, 0));
    Program& part = programs[place % parts];
    for (size_t turn = 0; turn < part.turns(); ++turn) {
      part.ops[turn][static_cast<int>(queue.kind)] += queue.begins[turn + 1] - queue.begins[turn];
    }
    part.queues.push_back(std::move(queue));
  }
  return programs;
}

LoopTeam::LoopTeam(std::vector<BatchLoop*> loops, int gpu) : loops_(std::move(loops)) {
  if (loops_.size() > 1) {
    team_ = std::make_unique<Team>(loops_.size());
    for (size_t i = 0; i < loops_.size(); ++i) loops_[i]->join(team_.get(), i);
  }
  for (BatchLoop* loop : loops_) threads_.push_back(std::make_unique<ProgressThread>(*loop, gpu));
}

void LoopTeam::loaded() {
  if (!team_) return;
  team_->set_counters(loops_.front()->counters());
  for (BatchLoop* loop : loops_) loop->use_team_counters();
}

void LoopTeam::reserve(uint64_t iterations) {
  for (BatchLoop* loop : loops_) loop->reserve(iterations);
}

void LoopTeam::arm(uint64_t iterations) {
  for (BatchLoop* loop : loops_) loop->arm(iterations);
}

bool LoopTeam::pin(const std::vector<int>& cpus) {
  bool pinned = true;
  for (size_t i = 0; i < std::min(cpus.size(), threads_.size()); ++i) {
    pinned &= threads_[i]->pin(cpus[i]);
  }
  return pinned;
}

void LoopTeam::start(const BatchPlan& plan) {
  if (team_) team_->begin();
  for (const auto& thread : threads_) thread->start(plan);
}

bool LoopTeam::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (const auto& thread : threads_) {
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (thread->wait(std::max(left, 0.0)) == ProgressThread::State::kRunning) return false;
  }
  return true;
}

void LoopTeam::request_stop() {
  for (BatchLoop* loop : loops_) loop->request_stop();
}

// An iteration has ended when every loop's part of it has.
BatchStamps LoopTeam::stamps(uint64_t iterations) const {
  BatchStamps all = loops_.front()->stamps();
  all.end.resize(iterations);
  all.send_done.resize(iterations);
  all.receive_done.resize(iterations);
  all.flush_begun.resize(all.flush_begun.empty() ? 0 : iterations);
  all.source_done.resize(iterations * sources().size());
  for (size_t i = 1; i < loops_.size(); ++i) {
    const BatchStamps& other = loops_[i]->stamps();
    all.start = std::min(all.start, other.start);
    all.late |= other.late;
    take_latest(all.end, other.end);
    take_latest(all.send_done, other.send_done);
    take_latest(all.receive_done, other.receive_done);
    take_latest(all.flush_begun, other.flush_begun);
    take_latest(all.source_done, other.source_done);
  }
  return all;
}

std::vector<ChunkTrace> LoopTeam::trace() const {
  std::vector<ChunkTrace> all;
  for (const BatchLoop* loop : loops_) {
    const auto its = loop->trace();
    all.insert(all.end(), its.begin(), its.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const ChunkTrace& a, const ChunkTrace& b) {
    return a.finished < b.finished;
  });
  return all;
}

// That of the loop for which the others ended.
Fault LoopTeam::fault() const {
  if (!team_) return loops_.front()->fault();
  if (team_->failed() == Team::kNone) return {};
  const auto which = static_cast<size_t>(team_->failed());
  Fault fault = loops_[which]->fault();
  for (size_t i = 0; i < which && fault.flow >= 0; ++i) {
    if (loops_[i]->has_picture()) fault.flow += static_cast<int>(loops_[i]->picture().size());
  }
  return fault;
}

// A loop that has done its part has none, and nothing to be told of.
std::vector<FlowReport> LoopTeam::picture() const {
  if (!team_) return loops_.front()->picture();
  std::vector<FlowReport> all;
  for (const BatchLoop* loop : loops_) {
    if (!loop->has_picture()) continue;
    all.insert(all.end(), loop->picture().begin(), loop->picture().end());
  }
  return all;
}

bool LoopTeam::take_picture_ready() {
  for (size_t i = 0; i < loops_.size() && team_; ++i) {
    const bool runs = threads_[i]->wait(0) == ProgressThread::State::kRunning;
    if (runs && !loops_[i]->is_picture_ready()) return false;
  }
  bool ready = false;
  for (BatchLoop* loop : loops_) ready |= loop->take_picture_ready();
  return ready;
}

int64_t LoopTeam::idle_ns() const {
  int64_t least = loops_.front()->idle_ns();
  for (const BatchLoop* loop : loops_) least = std::min(least, loop->idle_ns());
  return least;
}

int64_t LoopTeam::stuck_ns() const {
  int64_t most = 0;
  for (const BatchLoop* loop : loops_) most = std::max(most, loop->stuck_ns());
  return most;
}

void LoopTeam::give_up() {
  const auto less = [](const BatchLoop* a, const BatchLoop* b) {
    return a->stuck_ns() < b->stuck_ns();
  };
  (*std::max_element(loops_.begin(), loops_.end(), less))->give_up();
}

std::vector<int> LoopTeam::thread_ids() const {
  std::vector<int> ids;
  for (const auto& thread : threads_) ids.push_back(thread->thread_id());
  return ids;
}

// Of the process: by the thread whose batch was the longest. What no loop had is the others'.
ProgressThread::CpuTime LoopTeam::cpu_time() const {
  ProgressThread::CpuTime all{0, 0, 0};
  int64_t own = 0;
  for (const auto& thread : threads_) {
    const ProgressThread::CpuTime its = thread->cpu_time();
    own += its.user_ns + its.system_ns - its.others_ns;
    if (its.user_ns + its.system_ns >= all.user_ns + all.system_ns) all = its;
  }
  if (threads_.size() > 1) {
    all.others_ns = std::max<int64_t>(all.user_ns + all.system_ns - own, 0);
  }
  return all;
}

}  // namespace tcpx
