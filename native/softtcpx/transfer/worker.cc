#include "softtcpx/transfer/worker.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace softtcpx {

Worker::~Worker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.store(true, std::memory_order_seq_cst);
  }
  poller_.wake();
  thread_.join();
}

bool Worker::start() {
  if (!poller_.open()) return false;
  // Signals are for the threads of the program that loaded us.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "softtcpx-worker");  // for top and ps
      run();
    });
  } catch (const std::system_error& error) {
    errno = error.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread_.joinable();
}

void Worker::adopt(Comm* comm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arriving_.push_back(comm);
  changed_.store(true, std::memory_order_seq_cst);
  poller_.wake();
}

void Worker::release(Comm* comm) {
  std::unique_lock<std::mutex> lock(mutex_);
  leaving_.push_back(comm);
  changed_.store(true, std::memory_order_seq_cst);
  poller_.wake();
  released_.wait(
      lock, [&] { return std::find(leaving_.begin(), leaving_.end(), comm) == leaving_.end(); });
}

bool Worker::take_changes() {
  const std::lock_guard<std::mutex> lock(mutex_);
  changed_.store(false, std::memory_order_seq_cst);
  comms_.insert(comms_.end(), arriving_.begin(), arriving_.end());
  arriving_.clear();
  for (Comm* comm : leaving_)
    comms_.erase(std::remove(comms_.begin(), comms_.end(), comm), comms_.end());
  leaving_.clear();
  released_.notify_all();
  return !stop_;
}

Worker* WorkerPool::borrow(int threads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Slot& slot = *std::min_element(slots_.begin(), slots_.begin() + threads,
                                 [](const Slot& a, const Slot& b) { return a.users < b.users; });
  if (slot.worker == nullptr) {
    auto worker = std::make_unique<Worker>(spin_us_);
    if (!worker->start()) return nullptr;
    slot.worker = std::move(worker);
  }
  ++slot.users;
  return slot.worker.get();
}

void WorkerPool::put_back(Worker* worker) {
  std::unique_ptr<Worker> last;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Slot& slot : slots_) {
      if (slot.worker.get() != worker) continue;
      if (--slot.users == 0) last = std::move(slot.worker);
    }
  }  // joined without the lock
}

}  // namespace softtcpx
