// The loops of a rank, each with its progress thread, as if they were one: what a batch was is put
// together when all have ended. One loop alone is as it was.
#pragma once

#include <memory>
#include <vector>

#include "engine/batch_loop.h"
#include "engine/progress_thread.h"
#include "engine/team.h"

namespace tcpx {

// The program of each of `parts` loops: the queues of channel c go to part c modulo parts, moved on
// by the peer, so that few channels to many peers are spread too.
std::vector<Program> split(Program whole, size_t parts);

class LoopTeam {
 public:
  // The loops outlive it. With a GPU there is one alone. Throws CudaUnavailable, CudaError.
  LoopTeam(std::vector<BatchLoop*> loops, int gpu);

  size_t size() const { return loops_.size(); }
  // Once all loops have their part of a row.
  void loaded();
  void reserve(uint64_t iterations);
  uint64_t reserved() const { return loops_.front()->stamps().end.size(); }
  void arm(uint64_t iterations);
  // Thread i to CPU i of these; what is beyond them is left to the scheduler. False if the
  // system refuses.
  bool pin(const std::vector<int>& cpus);

  void start(const BatchPlan& plan);
  // True when all have ended; false after `seconds`.
  bool wait(double seconds);
  void request_stop();

  BatchStamps stamps(uint64_t iterations) const;
  const std::vector<int>& sources() const { return loops_.front()->sources(); }
  const std::vector<int>& source_lanes() const { return loops_.front()->source_lanes(); }
  std::vector<ChunkTrace> trace() const;
  Fault fault() const;
  std::vector<FlowReport> picture() const;
  bool take_picture_ready();
  int64_t idle_ns() const;
  int64_t stuck_ns() const;  // of the one that is stuck longest
  // The one that is stuck longest gives up, for all of them.
  void give_up();
  // Of the first thread, which alone is pinned to a CPU of its own.
  const CpuBits& cpus_seen() const { return loops_.front()->cpus_seen(); }
  std::vector<int> thread_ids() const;
  ProgressThread::CpuTime cpu_time() const;

 private:
  std::vector<BatchLoop*> loops_;
  std::unique_ptr<Team> team_;  // none: one loop
  std::vector<std::unique_ptr<ProgressThread>> threads_;
};

}  // namespace tcpx
