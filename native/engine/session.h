// A session with one peer: its comms, and messages posted one by one, outside of timed runs.
//
// Whoever waits for one session makes progress for all of this process, connections too. Otherwise
// ranks that connect around a circle, each to its next one first, would wait for each other for
// ever. The accept of a plugin may block until its peer connects: no accept of a round is polled
// before all connects are begun.
//
// A message is cut into chunks; an empty one is one chunk of 0 bytes. Chunks go round over the
// channels. The next message of the direction begins behind them, so that small messages use all
// channels, too. Each comm is a flow (engine/flow.h), which takes the chunks of the messages in the
// order of their posts. A transfer is a few messages that are waited for together; it owns no part
// of a window, so that it can end without touching another. A fault is kept and ends all that is
// not finished.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/clock.h"
#include "engine/connections.h"
#include "engine/flow.h"
#include "unpack/unpacker.h"

namespace tcpx {

class Gpu;

struct TransferLimits {
  int channels = 2;
  uint64_t chunk_bytes = 512 << 10;
  int window_send = 12;
  int window_receive = 16;
  bool tells_sizes = false;                    // the plugin does, of every receive
  int64_t close_patience_ns = 10'000'000'000;  // with a GPU that has unpacks to end
  // Progress is its owner's alone: no wait for another session makes any for it.
  bool alone = false;
};

enum class TransferState {
  kComplete,  // nothing of it is left to do; also before its first message
  kActive,
  kFailed,  // something is left that will never be done: see fault()
};

enum class WaitResult { kComplete, kFailed, kStalled, kClosed };

struct TransferFault : FlowFault {
  uint64_t transfer = 0;
  uint64_t message = 0;  // of its direction, since the session began
};

// One comm as it stands.
struct TransferPicture : FlowPicture {
  uint64_t queued = 0;  // messages with chunks that are not posted
  uint64_t oldest_transfer = 0;
  uint64_t oldest_message = 0;
};

// A stretch of registered memory.
struct MessagePlace {
  uint64_t memory;
  uint64_t offset;
  uint64_t bytes;
};

// What a call of a session names and what is not there.
class NoSuchMemory : public std::invalid_argument {
 public:
  NoSuchMemory() : std::invalid_argument("no such memory") {}
};
class NoSuchTransfer : public std::invalid_argument {
 public:
  NoSuchTransfer() : std::invalid_argument("no such transfer") {}
};
class MemoryInUse : public std::invalid_argument {
 public:
  explicit MemoryInUse(uint64_t messages)
      : std::invalid_argument("in use by " + std::to_string(messages) + " unfinished messages") {}
};
class SessionClosed : public std::invalid_argument {
 public:
  SessionClosed() : std::invalid_argument("the session is closed") {}
};
class NoConnections : public std::invalid_argument {
 public:
  NoConnections() : std::invalid_argument("no connections of that direction") {}
};

// What the connects of some sessions leave to their accepts.
struct SetupRound {
  bool accepts = false;  // there are some to poll
  bool begun = true;     // every connect is: none of the accepts blocks for want of one here
  bool over() const { return accepts && begun; }
};

// May be called from several threads.
class Session {
 public:
  // With a GPU, whose memory may then be registered: it is current in every call, and only there.
  // Throws std::invalid_argument for limits outside of the contract, CudaUnavailable, CudaError.
  // Connects and accepts that are under way when it closes are left to `leftovers`, if any.
  Session(Net& net, int device, const TransferLimits& limits, int gpu = -1,
          UnpackMode unpack = UnpackMode::kKernel, Leftovers* leftovers = nullptr);
  ~Session();  // closes, without a word
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The handle of a channel, which the peer connects to; and the peer's, to connect to.
  std::array<uint8_t, kNetHandleBytes> listen(int channel);
  void add_send(int channel, const uint8_t* handle);
  // Until every comm of the direction, or every one, is there. Throws ConnectTimeout after
  // `patience_s` without progress, and may then be called again; PluginError of a refusal stays.
  void establish(double patience_s, std::optional<Direction> direction,
                 const WaitHook& hook = nullptr);

  // Memory that messages may name, registered with every comm, those to come too.
  int register_memory(uint8_t* data, size_t bytes, int type);
  // The same for memory to which the caller has given a number. With `on_use` it is registered with
  // the comms of a direction when the first message there names it.
  void add_memory(uint64_t memory, uint8_t* data, size_t bytes, int type, bool on_use);
  // Throws NoSuchMemory, MemoryInUse.
  void deregister_memory(uint64_t memory);

  uint64_t create();
  // All messages in this order, or none if it throws NoSuchTransfer, NoSuchMemory,
  // NoConnections, std::out_of_range beyond the memory's end, or PluginError of a registration.
  void post(uint64_t transfer, Direction direction, const MessagePlace* places, size_t count);
  void post(uint64_t transfer, Direction direction, uint64_t memory, uint64_t offset,
            uint64_t bytes) {
    const MessagePlace place{memory, offset, bytes};
    post(transfer, direction, &place, 1);
  }
  // The transfer is forgotten; what is not finished goes on.
  void release(uint64_t transfer);

  // After one round of progress.
  TransferState poll(uint64_t transfer);
  // As it is, and when something of it moved last.
  TransferState look(uint64_t transfer, int64_t* last_progress = nullptr) const;
  // One round over its connects and flows; true when anything moved.
  bool advance(SetupRound& setup);
  // One round over its accepts, which may block: when `setup` says so, of all sessions that this
  // thread advances.
  bool accept();
  // Until it is complete, or nothing has moved in its directions for `patience_ns`. The lock is
  // free between two rounds.
  WaitResult wait(uint64_t transfer, int64_t patience_ns, const WaitHook& hook = nullptr);

  // From now on a fault of kind kStopped, unless there is one: no further call but of close().
  void end();
  TransferFault fault() const;
  std::vector<TransferPicture> picture() const;

  // How far the connections of a direction are, or all; rethrows a refusal.
  size_t pending(std::optional<Direction> direction) const;
  // Whether every connect is: see Connections::begun.
  bool begun() const;
  // Whether progress may move anything: connections that come up, messages that are not finished.
  bool connecting() const;
  bool transferring() const;
  // Of the accepts that are done.
  void close_listeners();
  // False: no accept is begun, so that close() may close the listeners at once.
  void take_accepts(bool taken) { accepts_ = taken; }
  std::string describe_late(double patience_s) const;

  // Waits for the GPU's work under way, deregisters, then closes all comms; what is not finished is
  // lost. Reports the first refusal. A GPU that does not end leaves the comms open. Nothing in a
  // forked child, whose connections are its parent's.
  void close();

  const Connections& connections() const { return connections_; }

 private:
  struct Memory {
    uint8_t* data;
    size_t bytes;
    int type;
    bool on_use;
    std::vector<std::vector<void*>> mhandles;  // by flow, by region; empty: not registered there
    uint64_t messages = 0;                     // that are not finished
  };
  struct Transfer {
    uint64_t open[2] = {0, 0};  // chunks that are not finished, by direction
    bool released = false;
  };
  struct Message {
    uint64_t number;
    uint64_t transfer;
    uint64_t memory;
    uint64_t offset;
    uint64_t bytes;
    uint64_t chunks;
    uint64_t open;  // chunks that are not finished
  };
  using Messages = std::map<uint64_t, Message>;
  // The part of a message that travels on one channel: chunk `next`, next + channels, ...
  struct Share {
    Message* message;
    uint64_t next;
  };
  struct Shares {
    size_t index;  // in flows_
    std::deque<Share> queue;
  };
  struct Part {
    Message* message;
    uint64_t chunk;
  };
  using MessageFlow = Flow<Shares, Part>;
  template <typename, typename>
  friend struct Flow;

  // As a feed.
  static constexpr bool kComputes = false;
  static constexpr bool kTraces = false;
  static constexpr bool kGroups = false;
  Net& net() { return net_; }
  bool failed() const { return fault_.kind != FaultKind::kNone; }
  int64_t now() const { return now_ns(); }
  bool next(const MessageFlow& flow, Chunk<Part>& chunk, Posting& posting) const;
  void took(MessageFlow& flow, const Chunk<Part>& chunk);
  void finished(const MessageFlow& flow, const Chunk<Part>& chunk);
  void fail(const MessageFlow& flow, const Chunk<Part>& chunk, const FlowFault& fault);
  void calls(const MessageFlow& flow, watch::InCall call) { heartbeat_.enter(&flow, call); }
  void flushes(const Chunk<Part>&) {}  // nobody counts how long it takes

  bool progress(SetupRound& setup);  // one round over connects and flows
  bool progress_all();               // and over accepts, and over those of the other sessions
  template <typename Step>
  bool with_others(const Step& step);
  bool poll_accepts();
  bool poll_connections(Direction direction);
  void adopt_comms();
  void check(const MessagePlace& place) const;
  void register_with(const std::vector<MessageFlow*>& flows, Memory& memory);
  void enqueue(uint64_t transfer, int way, const MessagePlace& place);
  bool end_unpacks();
  TransferState state_of(const Transfer& transfer) const;
  Transfer& find(uint64_t transfer);
  const Transfer& find(uint64_t transfer) const;
  int64_t last_progress(const Transfer& transfer) const;
  uint64_t chunk_bytes(const Message& message, uint64_t chunk) const;

  Net& net_;
  TransferLimits limits_;
  const int owner_;                     // the process
  const Gpu* const gpu_;                // NULL: none
  std::unique_ptr<Unpacker> unpacker_;  // into its memory
  Leftovers* const leftovers_;
  bool flushes_ = false;      // receives into GPU memory that the plugin puts there
  bool dma_buf_ = false;      // how that is registered
  mutable std::mutex mutex_;  // guards all below
  Connections connections_;
  std::exception_ptr refusal_;     // of a connect, an accept, or a registration with a new comm
  std::deque<MessageFlow> flows_;  // their addresses stay
  std::vector<MessageFlow*> flow_of_[2];  // by direction and channel; NULL: no comm yet
  std::map<uint64_t, Memory> memories_;
  std::map<uint64_t, Transfer> transfers_;
  Messages messages_[2];  // not finished, by direction and number
  uint64_t next_message_[2] = {0, 0};
  uint64_t next_channel_[2] = {0, 0};
  uint64_t next_transfer_ = 1;
  int next_memory_ = 1;
  int64_t last_progress_[2] = {0, 0};
  TransferFault fault_;
  uint64_t warnings_before_ = 0;  // the round of progress under way
  bool closed_ = false;
  std::atomic<bool> accepts_{true};
  watch::Heartbeat heartbeat_;  // of a round over the flows
  const watch::Watched watched_{heartbeat_, "of a session"};
};

}  // namespace tcpx
