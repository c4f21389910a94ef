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
              int gpu, tcpx::UnpackMode unpack, tcpx::Leftovers* leftovers)
      : name_(std::move(name)), link_(net, device, limits, gpu, unpack, leftovers) {}

  const std::string& name() const { return name_; }
  tcpx::Session& link() { return link_; }

  // "remote 'b': "; of one without a name, which is a session's only one, nothing.
  std::string prefix() const { return name_.empty() ? "" : "remote '" + name_ + "': "; }

  // Throws what has ended it, if anything has.
  void require_alive() const;
  // The same as a value.
  Status status(std::string* text) const;
  RemoteStage stage() const;

  // One round, which keeps what goes wrong: see the same of tcpx::Session.
  bool advance(tcpx::SetupRound& setup);
  bool accept();
  void fail(const std::string& reason);
  // Reports the first refusal.
  void close();

  std::string info;  // of listen; guarded by the session's mutex
  // What was done of its set-up.
  std::atomic<bool> listens{false};
  std::atomic<bool> loaded{false};
  std::atomic<bool> accepted{false};
  std::atomic<bool> connected{false};

 private:
  template <typename Step>
  bool keeping_failures(const Step& step);

  const std::string name_;
  tcpx::Session link_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> settled_{false};  // all connections are there, no listener is open
  mutable std::mutex mutex_;          // guards the next one
  std::string reason_;                // of fail
};

}  // namespace tcpx_p2p
