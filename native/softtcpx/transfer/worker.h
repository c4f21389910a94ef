// A thread that owns connections, and the workers of a device.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "softtcpx/environment/settings.h"
#include "softtcpx/transfer/poller.h"

namespace softtcpx {

class Comm;

class Worker {
 public:
  explicit Worker(int64_t spin_us) : spin_us_(spin_us) {}
  ~Worker();  // joins

  bool start();
  Poller& poller() { return poller_; }

  // At set-up and close only; release returns once the worker has let go of the connection.
  void adopt(Comm* comm);
  void release(Comm* comm);

  // After a request was posted: nearly free while the worker is awake. False: it was.
  bool wake_if_parked() {
    const bool parked = is_parked();
    if (parked) poller_.wake();
    return parked;
  }
  bool is_parked() const { return state_.load(std::memory_order_seq_cst) != State::kAwake; }
  // After another thread has taken what epoll had for it.
  void wake_if_watching() {
    if (state_.load(std::memory_order_seq_cst) == State::kWatching) poller_.wake();
  }

 private:
  enum class State : uint8_t {
    kAwake,
    kWatching,  // it sleeps until a socket of its comms or somebody wakes it
    kAsleep,    // until somebody does: all that is pending is small, and the callers' own to move
  };

  void run();
  bool take_changes();  // false: stop
  void park();

  const int64_t spin_us_;
  Poller poller_;
  std::thread thread_;
  std::vector<Comm*> comms_;  // the thread's own
  std::atomic<State> state_{State::kAwake};

  std::mutex mutex_;  // guards what follows; the thread takes it only when changed_ is set
  std::condition_variable released_;
  std::vector<Comm*> arriving_, leaving_;
  bool stop_ = false;
  std::atomic<bool> changed_{false};
};

// A device has as many workers as the listener of a connection asked for, each started when its
// first connection comes and joined when its last one leaves.
class WorkerPool {
 public:
  explicit WorkerPool(int64_t spin_us) : spin_us_(spin_us) {}

  Worker* borrow(int threads);  // null with errno set when none can be started
  void put_back(Worker* worker);

 private:
  struct Slot {
    std::unique_ptr<Worker> worker;
    int users = 0;
  };

  const int64_t spin_us_;
  std::mutex mutex_;
  std::array<Slot, kMaxThreads> slots_;
};

}  // namespace softtcpx
