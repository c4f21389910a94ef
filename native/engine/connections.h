// The comms of a rank: listening, connecting, registering memory, closing.
//
// This is set-up, not the hot path: it may allocate and throw, but every wait has a deadline on
// lack of progress, and nothing is called again after it has failed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/comm.h"
#include "engine/tcp_info.h"
#include "net/library.h"

namespace tcpx {

// What a caller wants done while we wait, about every kWaitHookNs; by throwing it ends the wait.
using WaitHook = std::function<void()>;
constexpr int64_t kWaitHookNs = 50'000'000;

// Whether every peer that connects to this rank has begun to. Asked again and again until it is so,
// and not before this rank's own connects are begun: so that it can tell of them.
using BegunHook = std::function<bool()>;

// Not all comms came up in time; the text names those that did not.
class ConnectTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Interrupt : public std::runtime_error {
 public:
  explicit Interrupt(int signal_number)
      : std::runtime_error("interrupted"), signal(signal_number) {}
  int signal;
};

class Leftovers;

class Connections {
 public:
  // The GPU is current in each call here, and the plugin may keep what it tells the receiving side
  // in its memory; -1: no GPU, every pointer is the host's.
  Connections(Net& net, int device, int gpu = -1);

  // The handle to give to `peer`, which connects to it.
  std::array<uint8_t, kNetHandleBytes> listen(int peer, int lane, int channel);
  void add_send(int peer, int lane, int channel, const uint8_t* handle);

  // Polls all connects and accepts together until every comm is there. An accept of a plugin that
  // does not unpack may block until its peer's connect has begun. So none is polled before this
  // rank's own connects and those of its peers have begun; `begun` tells of peers in other
  // processes.
  void establish(double timeout_s, const WaitHook& hook = nullptr,
                 const BegunHook& begun = nullptr);

  // One round over the connects, then the accepts, that are pending; true when one came up. After a
  // refusal there is none: the handle and the listener that were refused may not be used again.
  bool poll();
  bool poll(Direction direction);
  // Whether every connect is up, or was polled so often that its peer hears of it.
  bool begun() const;
  size_t pending(std::optional<Direction> direction = std::nullopt) const;
  // What is pending, in words: "2 of 4 connections HOW: to rank 1, lane 0, channel 0; ...".
  std::string describe_pending(const std::string& how) const;
  std::string describe_late(double timeout_s) const;  // and what the plugin said meanwhile

  // Of the accepts that are done.
  void close_listeners();

  // Registers a buffer with every comm; once for all of them where the plugin says that a
  // registration is (regIsGlobal).
  void register_buffer(int buffer, uint8_t* data, size_t bytes, Registration how);

  // How a buffer is registered: NCCL_PTR_HOST or NCCL_PTR_CUDA.
  int pointer_of(int buffer) const { return registered_[buffer].type; }

  // Makes room of the engine's own for receives on a comm, registered with it as `buffer` is, and
  // at least as large as asked. Not while requests are posted there.
  void stage(Comm& comm, size_t bytes, int buffer);

  // In NCCL's order; every peer must have finished receiving before. Reports the first refusal. A
  // connect or accept that is under way is left to `leftovers`; without one its listener stays
  // open.
  void close(Leftovers* leftovers = nullptr);

  Comm* find(Direction direction, int peer, int lane, int channel) const;
  const std::vector<std::unique_ptr<Comm>>& comms() const { return comms_; }
  const TcpSockets& sockets() const { return sockets_; }

 private:
  bool advance(Comm& comm);  // true when it became established now
  void fetch_queue(Comm& comm) const;
  void open(Comm& comm);
  void select_gpu() const;

  Net& net_;
  int device_;
  int gpu_;
  bool unpacks_;
  bool shares_registrations_;
  std::array<Registration, kBuffers> registered_{};
  bool refused_ = false;          // a connect or accept returned an error
  int connect_rounds_ = 0;        // since the last connect was added
  uint64_t warnings_before_ = 0;  // its first comm
  std::vector<std::unique_ptr<Comm>> comms_;
  TcpSockets sockets_;
};

// A size as the code of a fault.
inline int size_code(uint64_t bytes) {
  return static_cast<int>(std::min<uint64_t>(bytes, std::numeric_limits<int>::max()));
}

}  // namespace tcpx
