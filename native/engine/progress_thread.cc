#include "engine/progress_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <chrono>

namespace tcpx {
namespace {

ProgressThread::CpuTime process_cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& t) {
    return int64_t{t.tv_sec} * 1'000'000'000 + int64_t{t.tv_usec} * 1000;
  };
  return {ns(usage.ru_utime), ns(usage.ru_stime)};
}

}  // namespace

ProgressThread::ProgressThread(Driver& driver) : driver_(driver) {
  thread_ = std::thread([this] { loop(); });
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool ProgressThread::pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(thread_.native_handle(), sizeof(set), &set) == 0;
}

void ProgressThread::start(const BatchPlan& plan) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    plan_ = plan;
    state_ = State::kRunning;
  }
  changed_.notify_all();
}

ProgressThread::State ProgressThread::wait(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [this] { return state_ != State::kRunning; });
  return state_;
}

void ProgressThread::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || state_ == State::kRunning; });
    if (stopping_) return;
    const BatchPlan plan = plan_;
    lock.unlock();
    const CpuTime before = process_cpu_time();
    driver_.run(plan);
    const CpuTime after = process_cpu_time();
    lock.lock();
    cpu_ = {after.user_ns - before.user_ns, after.system_ns - before.system_ns};
    state_ = State::kFinished;
    changed_.notify_all();
  }
}

}  // namespace tcpx
