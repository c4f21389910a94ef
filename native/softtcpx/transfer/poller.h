// One epoll for all connections of an owner: it turns readiness into flags, a flag cell a
// connection.
#pragma once

#include <atomic>
#include <cstdint>

#include "softtcpx/environment/socket.h"

namespace softtcpx {

// Where a connection finds what epoll said about its sockets: one bit each. Cells are recycled but
// never freed. A thread that still holds an event of a closed connection writes into a cell, and
// its next user looks once in vain.
struct alignas(64) ReadyCell {
  static constexpr int kHangUpShift = 32;  // bit n + 32: socket n has an end to be read
  static constexpr uint64_t kReadyMask = (uint64_t{1} << kHangUpShift) - 1;

  std::atomic<uint64_t> events{0};
};
ReadyCell* take_cell();
void return_cell(ReadyCell* cell);

class Poller {
 public:
  // False with errno set when the process has no descriptors left.
  bool open();

  // Edge-triggered. `bit` (0..31) is what an event of this socket sets in `cell`.
  bool add(int fd, uint32_t epoll_events, ReadyCell* cell, int bit);
  void remove(int fd);

  // Delivers what is there, without waiting. False: nothing was.
  bool sweep() { return deliver(0); }
  // Waits for an event, for `wake`, or for the deadline.
  void wait(int timeout_ms) { deliver(timeout_ms); }
  // Leaves the events to whoever sweeps.
  void wait_for_wake(int timeout_ms);
  void wake();

  // Counts the sweeps. A connection that has seen the newest one, and was told nothing, does the
  // next: so a round over any number of idle connections costs one system call.
  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }

  // Data sockets whose connection has requests pending. While they are few, trying each one is
  // quicker than asking about all of them.
  void add_waiting(int sockets) { waiting_.fetch_add(sockets, std::memory_order_relaxed); }
  int waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  bool deliver(int timeout_ms);
  void take_wake();

  Fd epoll_;
  Fd wake_;
  std::atomic<uint32_t> generation_{1};
  std::atomic<int> waiting_{0};
};

}  // namespace softtcpx
