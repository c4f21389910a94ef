// The comms of a rank: listening, connecting, registering memory, closing.
//
// This is set-up, not the hot path: it may allocate and throw, but every wait has a deadline on
// lack of progress, and nothing is called again after it has failed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/program.h"
#include "engine/tcp_info.h"
#include "memory/buffer.h"
#include "net/library.h"

namespace tcpx {

// A registration covers kRegionBytes, plus as much as a chunk that begins in it may need: so chunk
// offsets need no relation to region borders, and a buffer of any size fits calls with int sizes.
constexpr int kRegionShift = 30;
constexpr size_t kMaxChunkBytes = size_t{2} << 20;

enum class Direction { kSend, kReceive };

constexpr int kUnranked = -1;  // the one peer of a session, which has no rank

struct Comm {
  Direction direction;
  int peer;
  int lane;
  int channel;
  void* comm = nullptr;         // NULL until established
  void* listen_comm = nullptr;  // receive side, until all are established
  // The plugin keeps its state in the handle while it connects: this copy is its own and never
  // moves.
  std::array<uint8_t, kNetHandleBytes> handle{};
  alignas(16) std::array<uint8_t, 64> device_block{};  // where accept writes a device handle
  NetDeviceHandle* device_handle = nullptr;
  std::vector<void*> mhandles[kBuffers];  // by region
  // Where receives land that are reduced on their way to where they belong; see Connections::stage.
  std::unique_ptr<HostBuffer> staging;
  std::vector<void*> staging_mhandles;
  uint64_t receives_done = 0;  // since the comm came up: the k-th has slot k % 16 of its queue
  bool reports_sizes = false;  // the plugin wrote the size of a receive: from then on 0 is a size

  // What the device handle points to, where that is memory of a GPU.
  std::optional<NetUnpackDevice> fetched_queue;

  // Where the plugin lists the fragments of receives; NULL: it delivers in place.
  const NetUnpackDevice* unpack_queue() const {
    if (fetched_queue) return &*fetched_queue;
    return device_handle != nullptr && device_handle->type == kNetDeviceUnpack
               ? static_cast<const NetUnpackDevice*>(device_handle->handle)
               : nullptr;
  }
  int64_t began_ns = 0;  // when it was listened for, or its handle came; on now_ns()'s clock
  int64_t first_poll_ns = 0;
  bool refused = false;  // its connect or accept returned an error: it is over
  bool unpacks = false;  // the plugin wants a device handle block at accept
  int64_t listen_ns = 0;
  int64_t establish_ns = 0;  // from the first connect or accept to a comm
  int64_t register_ns = 0;
};

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
  // With a GPU, which is current in each call here, the plugin may keep what it tells the receiving
  // side in that one's memory; -1: there is none, and every pointer is the host's.
  Connections(Net& net, int device, int gpu = -1);

  // The handle to give to `peer`, which connects to it.
  std::array<uint8_t, kNetHandleBytes> listen(int peer, int lane, int channel);
  void add_send(int peer, int lane, int channel, const uint8_t* handle);

  // Polls all connects and accepts together until every comm is there. An accept of a plugin that
  // does not unpack may block until its peer's connect is begun: none is polled before this rank's
  // own connects are, and those of its peers, of which `begun` tells where they are in other
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

  // Registers a buffer with every comm of the directions that use it.
  void register_buffer(int buffer, uint8_t* data, size_t bytes, int type);

  // Makes room of the engine's own for receives on a comm, registered with it, and at least as
  // large as asked. Not while requests are posted there.
  void stage(Comm& comm, size_t bytes);

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
  bool refused_ = false;          // a connect or accept returned an error
  int connect_rounds_ = 0;        // since the last connect was added
  uint64_t warnings_before_ = 0;  // its first comm
  std::vector<std::unique_ptr<Comm>> comms_;
  TcpSockets sockets_;
};

std::string describe(const Comm& comm);

// One call of the plugin's connect or accept, by the direction; its code.
int open_comm(Net& net, int device, Comm& comm);

// A size as the code of a fault.
inline int size_code(uint64_t bytes) {
  return static_cast<int>(std::min<uint64_t>(bytes, std::numeric_limits<int>::max()));
}

// The mhandles of a stretch of memory on a comm, by region. Throws PluginError; then nothing stays
// registered.
std::vector<void*> register_regions(Net& net, const Comm& comm, uint8_t* data, size_t bytes,
                                    int type);

}  // namespace tcpx
