#include "engine/progress_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "cuda/gpu.h"
#include "net/exit_guard.h"

namespace tcpx {
namespace {

ProgressThread::Usage usage_of(int whom) {
  rusage usage{};
  getrusage(whom, &usage);
  const auto ns = [](const timeval& t) {
    return int64_t{t.tv_sec} * 1'000'000'000 + int64_t{t.tv_usec} * 1000;
  };
  return {ns(usage.ru_utime), ns(usage.ru_stime)};
}

int64_t clock_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

int64_t others_now() {
  return clock_of(CLOCK_PROCESS_CPUTIME_ID) - clock_of(CLOCK_THREAD_CPUTIME_ID);
}

}  // namespace

ProgressThread::ProgressThread(BatchLoop& loop, int gpu)
    : loop_(loop), gpu_(gpu >= 0 ? &use_gpu(gpu) : nullptr) {
  const GpuCurrent current(gpu_);  // what can go wrong is thrown here
  loop_.before_start([this] {
    before_ = usage_of(RUSAGE_SELF);
    others_before_ = others_now();
  });
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "tcpx-progress");  // for top and ps
    const exit_guard::CrashStack stack;
    serve();
  });
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return thread_id_ != 0; });
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

void ProgressThread::serve() {
  prctl(PR_SET_TIMERSLACK, 1);  // a short sleep is to be short
  if (gpu_ != nullptr) gpu_->select();
  std::unique_lock<std::mutex> lock(mutex_);
  thread_id_ = static_cast<int>(syscall(SYS_gettid));
  changed_.notify_all();
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || state_ == State::kRunning; });
    if (stopping_) return;
    const BatchPlan plan = plan_;
    lock.unlock();
    before_ = usage_of(RUSAGE_SELF);  // of a batch that does not come to its start
    others_before_ = others_now();
    loop_.run(plan);
    // Two clocks are not read at one instant: a microsecond less than nothing is nothing.
    const int64_t others = std::max<int64_t>(others_now() - others_before_, 0);
    const Usage after = usage_of(RUSAGE_SELF);
    lock.lock();
    cpu_ = {after.user_ns - before_.user_ns, after.system_ns - before_.system_ns, others};
    state_ = State::kFinished;
    changed_.notify_all();
  }
}

}  // namespace tcpx
