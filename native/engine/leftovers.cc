#include "engine/leftovers.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "cuda/gpu.h"
#include "engine/clock.h"
#include "net/plugin_error.h"

namespace tcpx {

void Leftovers::take(std::vector<std::unique_ptr<Comm>> comms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& comm : comms) {
    Leftover leftover;
    if (comm->direction == Direction::kReceive) {
      leftover.opposite = std::make_unique<Comm>();
      leftover.opposite->direction = Direction::kSend;
      leftover.opposite->handle = comm->handle;  // as listen wrote it
    }
    leftover.comm = std::move(comm);
    all_.push_back(std::move(leftover));
  }
  count_ = all_.size();
}

// Asks once more, unless it has ended: with a comm, or with an error.
bool Leftovers::has_ended(Comm* comm) {
  if (comm == nullptr || comm->comm != nullptr || comm->refused) return true;
  try {
    comm->refused = open_comm(net_, device_, *comm) != kNetSuccess;
  } catch (const PluginError&) {  // it has thrown something
    comm->refused = true;
  }
  return comm->comm != nullptr || comm->refused;
}

void Leftovers::advance(Leftover& leftover) {
  Comm& comm = *leftover.comm;
  const bool met = has_ended(leftover.opposite.get());  // before an accept, which may block
  const bool ended = has_ended(&comm);
  if (ended && comm.listen_comm != nullptr) {
    net_.close_listen(std::exchange(comm.listen_comm, nullptr));
  }
  // Our own connect ends by itself when there is no listener any more.
  if (!met || !ended) return;
  for (Comm* each : {leftover.opposite.get(), &comm}) {
    if (each == nullptr || each->comm == nullptr) continue;
    void* closed = std::exchange(each->comm, nullptr);
    each->direction == Direction::kSend ? net_.close_send(closed) : net_.close_recv(closed);
  }
  leftover.over = true;
}

bool Leftovers::advance() {
  if (count_ == 0) return false;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // another thread is at it
  const GpuCurrent current(gpu_ >= 0 ? &use_gpu(gpu_) : nullptr);
  for (Leftover& leftover : all_) advance(leftover);
  const size_t before = all_.size();
  all_.erase(
      std::remove_if(all_.begin(), all_.end(), [](const Leftover& each) { return each.over; }),
      all_.end());
  count_ = all_.size();
  return all_.size() != before;
}

void Leftovers::finish(int64_t patience_ns) {
  for (int64_t last = now_ns(); count_ > 0 && now_ns() - last <= patience_ns;) {
    if (advance()) {
      last = now_ns();
    } else {
      const timespec pause{0, 50'000};  // the plugin's threads may need this core
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace tcpx
