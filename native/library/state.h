// What a session of the library is, behind its handles: remotes, memory, and who makes progress.
//
// Locks, in this order: the session's (`mutex_`), then that of one remote's link. The progress
// thread, and who waits for it, meet at `wait_mutex_`, which is taken with no link's lock held.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/leftovers.h"
#include "library/conn_info.h"
#include "library/plugins.h"
#include "library/remote.h"
#include "tcpx_p2p/session.h"

namespace tcpx_p2p {

using Remote = std::shared_ptr<RemoteState>;

// One more while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

class SessionState {
 public:
  // Of a plugin that is initialised.
  SessionState(PluginUse plugin, int device, int channels, const Options& options);
  ~SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // The remote of this name, which has it from now on. Throws kClosed.
  Remote name_remote(const std::string& name);
  Remote find_remote(const std::string& name) const;  // throws kUnknownRemote
  Remote look_for(const std::string& name) const;     // NULL: there is none
  std::vector<std::string> remotes() const;

  std::string listen(const std::string& name);
  void load_remote_conn_info(const std::string& name, const std::string& info, bool accepts = true);
  void accept(const std::string& name, double timeout_s);
  void connect(const std::string& name, double timeout_s);
  void establish(const std::string& name, double timeout_s);
  void close_remote(const std::string& name);

  uint64_t register_memory(void* data, size_t bytes, MemoryKind kind);
  void deregister_memory(uint64_t mem_id);
  uint64_t memory_bytes(uint64_t mem_id) const;
  bool takes(MemoryKind kind) const;

  void post(RemoteState& remote, uint64_t transfer, tcpx::Direction direction, const Piece* pieces,
            size_t count);
  bool is_complete(RemoteState& remote, uint64_t transfer);
  TransferStage stage(RemoteState& remote, uint64_t transfer) const;
  void wait(RemoteState& remote, uint64_t transfer, double timeout_s);

  bool progress();
  bool anything_under_way() const;
  void close();
  void require_open() const;

  const PluginUse& plugin() const { return plugin_; }
  int device() const { return device_; }
  int channels() const { return channels_; }
  const Options& options() const { return options_; }

 private:
  struct Memory {
    uint8_t* data;  // what is registered: of a GPU whole pages around what the caller gave
    size_t registered;
    size_t shift;  // of the caller's first byte
    size_t bytes;
    int type;
  };
  using Remotes = std::vector<Remote>;

  std::string closed_text(const RemoteState& remote) const;
  void require_few_leftovers() const;
  ConnInfo info_of(std::vector<Handle> handles) const;
  void await(RemoteState& remote, std::optional<tcpx::Direction> direction, double timeout_s);
  void await_thread(RemoteState& remote, std::optional<tcpx::Direction> direction,
                    int64_t patience_ns);
  tcpx::WaitResult wait_for_thread(RemoteState& remote, uint64_t transfer, int64_t patience_ns);
  void shift(const Piece* pieces, size_t count, std::vector<tcpx::MessagePlace>* places) const;
  void call_hook(std::unique_lock<std::mutex>& lock);
  [[noreturn]] void explain(const Piece* pieces, size_t count) const;
  [[noreturn]] void throw_unknown(uint64_t mem_id) const;  // with mutex_ held
  Memory memory_of(void* data, size_t bytes, MemoryKind kind) const;
  void update_snapshot();  // with mutex_ held
  std::shared_ptr<const Remotes> snapshot() const;

  bool threaded() const { return options_.progress == Progress::kThread; }
  void run();   // the progress thread
  void wake();  // it, if it sleeps

  PluginUse plugin_;
  const int device_;
  const int channels_;
  const Options options_;
  const int owner_;  // the process
  const std::shared_ptr<tcpx::Leftovers> leftovers_;
  tcpx::TransferLimits limits_;
  bool takes_cuda_ = false;
  std::atomic<bool> closed_{false};

  mutable std::mutex mutex_;  // guards the next three
  std::map<std::string, Remote> remotes_;
  std::map<uint64_t, Memory> memories_;
  std::shared_ptr<const Remotes> snapshot_;

  std::thread thread_;
  std::mutex wait_mutex_;
  std::condition_variable moved_;   // for who waits for a transfer or a connection
  std::condition_variable wanted_;  // for the thread
  std::atomic<int> waiters_{0};
  std::atomic<int> callers_{0};  // who wants the lock of a link
  std::atomic<bool> sleeps_{false};
  bool stops_ = false;  // with wait_mutex_
};

}  // namespace tcpx_p2p
