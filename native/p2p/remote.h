// One remote of a session: its connections and messages, and how it ended.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "engine/session.h"
#include "tcpx_p2p/session.h"

namespace tcpx_p2p {

class RemoteState {
 public:
  RemoteState(std::string name, tcpx::Net& net, int device, const tcpx::TransferLimits& limits,
              int gpu, tcpx::UnpackMode unpack)
      : name_(std::move(name)), link_(net, device, limits, gpu, unpack) {}

  const std::string& name() const { return name_; }
  tcpx::Session& link() { return link_; }

  // "remote 'b': ".
  std::string prefix() const { return "remote '" + name_ + "': "; }

  // Throws what has ended it, if anything has.
  void require_alive() const;
  // The same as a value.
  Status status(std::string* text) const;
  RemoteStage stage() const;

  // One round, which keeps what goes wrong.
  bool advance();
  void fail(const std::string& reason);
  // Reports the first refusal.
  void close();

  // What was done of its set-up; guarded by the session's mutex.
  struct SetUp {
    std::string info;  // of listen
    bool accepted = false;
    bool connected = false;
  };
  SetUp set_up;
  std::atomic<bool> listens{false};
  std::atomic<bool> loaded{false};

 private:
  const std::string name_;
  tcpx::Session link_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> settled_{false};  // all connections are there, no listener is open
  mutable std::mutex mutex_;          // guards the next one
  std::string reason_;                // of fail
};

}  // namespace tcpx_p2p
