// Connects and accepts that were under way when their connections were closed.
//
// No plugin takes one back, and a listener may not be closed while its accept waits. So each goes
// on to its end here, and an accept is met by a connect of our own; what comes up is closed, and
// with it the listener. What does not end stays, and is counted: a plugin may wait for ever.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/comm.h"

namespace tcpx {

// May be called from several threads.
class Leftovers {
 public:
  // Of connections of this device and GPU (-1: none).
  Leftovers(Net& net, int device, int gpu) : net_(net), device_(device), gpu_(gpu) {}
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;

  // Comms whose connect or accept has begun and has not ended.
  void take(std::vector<std::unique_ptr<Comm>> comms);
  // One round; true when one of them ended. Does not wait.
  bool advance();
  // Rounds until all have ended, or none has for `patience_ns`.
  void finish(int64_t patience_ns);

  size_t count() const { return count_; }

 private:
  struct Leftover {
    std::unique_ptr<Comm> comm;      // its connect, or its accept
    std::unique_ptr<Comm> opposite;  // of an accept: our own connect
    bool over = false;
  };

  void advance(Leftover& leftover);
  bool has_ended(Comm* comm);

  Net& net_;
  const int device_;
  const int gpu_;
  std::mutex mutex_;  // guards the next one
  std::vector<Leftover> all_;
  std::atomic<size_t> count_{0};  // of them
};

}  // namespace tcpx
