// Faults on purpose, for the tests of a harness: each a variable, none on unless it is set.
//
// What a trap does is here; the connection asks at a few points, and where no trap is set it has no
// TrapState: one branch that is always predicted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "softtcpx/environment/settings.h"

namespace softtcpx {

// The traps of one connection. Message numbers count the posts of the connection from 0.
class TrapState {
 public:
  // Whether any trap is set for connections of this direction, in this process.
  static bool armed(const Traps& traps, bool sends);

  explicit TrapState(const Traps& traps) : traps_(traps) {}

  enum class Post { kGo, kBusy, kFull, kFailed };
  Post on_post(uint64_t outstanding);
  int code() const { return static_cast<int>(traps_.error_code); }

  // The test of the oldest message moves and tells nothing yet.
  bool too_soon() { return polls_ < traps_.polls && ++polls_ <= traps_.polls; }
  // The answer of test for a message that has completed, or would be asked about.
  enum class Answer { kGo, kNotYet, kFailed, kLost };
  Answer on_test(uint64_t sequence, bool completed);

  // As unkind as TCPX.
  bool takes_younger() const { return traps_.younger != 0; }
  bool warns_of_receives() const { return traps_.warn_receives != 0; }
  bool counts_late() const { return traps_.late_counts != 0; }
  // The end of a peer is looked for at once, and that of a data socket is no error.
  bool loses_peers() const { return traps_.lost_peer != 0; }
  void sender_closed() { ending_.store(Ending::kClosed, std::memory_order_release); }

  // The owner has moved bytes while this message was the oldest unfinished one: may not come back,
  // or late.
  void after_progress(uint64_t sequence);
  bool stopped(uint64_t completed) const {
    return traps_.stop_at >= 0 && completed > static_cast<uint64_t>(traps_.stop_at);
  }

  // What is done to a received message before it is told.
  struct Damage {
    bool corrupt, duplicate, reorder;
  };
  Damage damage(uint64_t sequence) const;
  bool leaks(uint64_t sequence) const { return is(traps_.leak_at, sequence); }
  bool overflows() const { return traps_.oversize != 0; }
  // The size that test writes: -1 for none, as TCPX.
  int64_t tested_size(uint64_t received) const {
    return traps_.sizes == 0 ? -1 : static_cast<int64_t>(received) + (traps_.sizes == 2 ? 1 : 0);
  }

 private:
  // How far a receiver's caller has been told that the sender closed.
  enum class Ending { kNone, kClosed, kTold, kPast };

  void slow_down();
  static bool is(int64_t at, uint64_t sequence) {
    return at >= 0 && static_cast<uint64_t>(at) == sequence;
  }

  const Traps& traps_;
  int64_t posts_ = 0;
  int64_t moved_ns_ = 0;                                 // when bytes moved last, 0: never
  int64_t tests_ = 0;                                    // since the oldest message completed
  int64_t polls_ = 0;                                    // since the one before was told
  std::chrono::steady_clock::time_point next_answer_{};  // SLOW_US
  bool failed_ = false;
  std::atomic<Ending> ending_{Ending::kNone};  // the owner's until kClosed, then the caller's
};

}  // namespace softtcpx
