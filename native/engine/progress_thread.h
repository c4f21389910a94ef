// The thread that drives: one a rank, native, with its own CPU, never Python's main thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/batch_loop.h"

namespace tcpx {

class Gpu;

class ProgressThread {
 public:
  // With a GPU, which is current on it whenever the loop runs; -1: without. Throws CudaUnavailable,
  // CudaError.
  explicit ProgressThread(BatchLoop& loop, int gpu = -1);
  ~ProgressThread();  // waits for the batch under way, which its deadline bounds

  // Binds the thread to one CPU; false if the system refuses.
  bool pin(int cpu);

  int thread_id() const { return thread_id_; }  // the kernel's

  void start(const BatchPlan& plan);

  enum class State { kIdle, kRunning, kFinished };
  // Waits up to `seconds` for the batch to end; kRunning says it has not.
  State wait(double seconds);

  struct Usage {
    int64_t user_ns;
    int64_t system_ns;
  };
  // Of the whole process from the start of the last batch on, helper threads of the plugin
  // included.
  struct CpuTime {
    int64_t user_ns;
    int64_t system_ns;
    int64_t others_ns;  // the part of both that this thread had not: plugin, Python, MPI
  };
  CpuTime cpu_time() const { return cpu_; }

 private:
  void serve();

  BatchLoop& loop_;
  const Gpu* gpu_;
  std::mutex mutex_;
  std::condition_variable changed_;
  BatchPlan plan_;
  State state_ = State::kIdle;
  bool stopping_ = false;
  Usage before_{0, 0};  // at the start of the batch under way
  int64_t others_before_ = 0;
  CpuTime cpu_{0, 0, 0};
  int thread_id_ = 0;  // known when the constructor returns
  std::thread thread_;
};

}  // namespace tcpx
