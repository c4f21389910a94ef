// A connection: one state machine with one owner.
//
// The caller posts requests and sees them done; the owner moves bytes. The owner is the caller
// itself, inside test, or one worker thread for the life of the connection. Between the two there
// are counters and no lock. With workers by cores in host memory the caller moves bytes, too, while
// its worker sleeps, which small messages do not wake: one flag says who is at it. What differs
// between sending and receiving is one step on one socket.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "softtcpx/environment/objects.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/environment/socket.h"
#include "softtcpx/gpu/cuda.h"
#include "softtcpx/transfer/poller.h"
#include "softtcpx/transfer/regions.h"
#include "softtcpx/transfer/requests.h"
#include "softtcpx/transfer/traps.h"

namespace softtcpx {

class Worker;

// The sockets of a finished handshake.
struct Sockets {
  Fd control;
  std::vector<Fd> data;
  int threads = 0;  // of the listener: it holds for both sides
  sockaddr_in peer{};
};

class Comm : public Object {
 public:
  virtual ~Comm() = default;

  // Joins the owner. False with errno set when the sockets cannot be watched.
  bool start();

  // The caller's side: one thread at a time, none of it waits. test and post give NCCL's codes.
  int post(void* data, int64_t bytes, const Region* region, void** request);
  int test(const Request& request, int* done, int* sizes);

  // The owner's side.
  // Moves what can be moved now, and looks for news if that is nothing. True: something moved.
  bool drive();
  bool has_pending() const;
  // False: what is pending is the caller's to move.
  bool wants_worker() const {
    return !caller_drives_ || ring_.completed.load(std::memory_order_acquire) <
                                  worker_until_.load(std::memory_order_seq_cst);
  }
  // True once a request was posted that drive has not looked at yet, and while something goes on
  // that no socket announces: whoever drives must not sleep then.
  bool has_news() const;
  // Of a trace: its worker has slept.
  void note_woken() const;

  // Before GPU memory is registered: whatever moving it takes. Throws CudaError or
  // std::system_error; false if this connection was made without a GPU and it is too late.
  virtual bool serve_gpu_memory(const Gpu& gpu) = 0;

  const Device& device() const { return device_; }
  const Gpu& gpu() const { return gpu_; }

 protected:
  // What one step on one data socket came to.
  enum class Step {
    kMoved,        // bytes moved; there may be more
    kMovedAll,     // bytes moved, and the socket will do no more for now
    kMovedForNow,  // bytes moved, and at the next look the socket has something to do
    kBlocked,      // the socket does nothing for now
    kNothingToDo,  // the socket could, but there is no request for it
  };

  static constexpr uint32_t bit_of(int socket) { return 1u << socket; }

  Comm(ObjectKind kind, Device& device, Sockets sockets);

  virtual void prepare(Request& request, uint64_t bytes) = 0;
  // The caller's part in what is posted, at each post and at each test of a request that is not
  // complete. True when that one is done for the caller all the same.
  virtual bool help(const Request&) { return false; }
  virtual Step step(int socket) = 0;
  // Where `talks_`: before each look at the sockets, what is to be told, or asked for, on the
  // control connection.
  virtual void exchange_notices() = 0;
  // Bytes on the control connection; false when none are expected.
  virtual bool take_control(const uint8_t*, size_t) { return false; }
  // Now and then, while nothing moves on a connection whose sockets are tried directly.
  virtual void while_idle() {}
  // After the steps, of which one `moved` bytes or none did: what does a lost peer or socket mean
  // for the requests that are still pending?
  virtual void judge_losses(bool moved) = 0;
  // Whether what is complete may be told.
  virtual bool is_in_reach(uint64_t) { return true; }
  // Of a trap: the caller is about to be told that this message is done.
  virtual void before_done(uint64_t) {}
  // What test writes as the size of a finished request, if anything.
  void tell_size(const Request& request, int* size) const;
  virtual uint64_t oldest_unfreed() const = 0;
  virtual bool goes_on_unannounced() const = 0;

  // Sticky: the first one counts.
  void fail(int code, const char* what, int error_number);
  // Of the caller, or of the owner.
  void note_failure(int code, const char* what, int error_number);
  void look_at_control() { ready_ |= bit_of(kControlBit); }
  int failure() const { return failure_.load(std::memory_order_acquire); }
  bool failed() const { return failure() != kNetSuccess; }
  void lose_socket(int socket) {
    data_bits_ &= ~bit_of(socket);
    losing_ = true;
  }
  void wake_owner();  // after a change that it sleeps for
  bool has_worker() const { return worker_ != nullptr; }
  // Before the derived part is gone: afterwards no thread touches this connection.
  void leave_owner();

  RequestRing ring_;
  Device& device_;
  const Gpu gpu_;  // whose context was current at connect or accept
  Sockets sockets_;
  uint32_t data_bits_;          // data sockets that still work
  bool control_ended_ = false;  // the peer has closed, or died
  bool losing_ = false;         // it has, or a data socket ended
  bool direct_ = false;         // each data socket is tried, whatever epoll has told
  const uint32_t data_events_;  // what epoll should tell about a data socket
  const bool recv_sync_;        // a send waits for a credit of the receiver
  const bool report_sizes_;
  bool talks_ = recv_sync_;   // there are notices on the control connection
  bool loses_peers() const {  // in the way of TCPX
    return __builtin_expect(trap_ != nullptr, false) && trap_->loses_peers();
  }
  // Of a trap: says so in the log, and that is all.
  void lose_socket_quietly(int socket, int error_number);
  const std::unique_ptr<TrapState> trap_;  // none, but in tests

 private:
  static constexpr int kControlBit = kMaxSockets;

  bool drive_alone();
  bool is_news() const;
  bool progress(uint32_t sockets);
  void take_events();
  int test_younger(const Request& request);
  bool is_beside_others(const Request& request);
  int count_large(int more);
  bool my_turn_to_sweep();
  void read_control();
  void complete_in_order();

  std::atomic<int> failure_{kNetSuccess};
  std::atomic<bool> failure_said_{false};
  Worker* worker_ = nullptr;  // none: the caller of test is the owner
  Poller* poller_ = nullptr;
  ReadyCell* cell_ = nullptr;

  const bool caller_drives_;                     // while its worker sleeps
  mutable std::atomic<bool> driven_now_{false};  // by one of the two
  std::atomic<uint64_t> worker_until_{0};        // requests before it are worth a worker
  int large_ = 0;                                // requests that are pending; the caller's own

  // The owner's own.
  uint32_t ready_;        // sockets that may do something, though epoll announces nothing new
  uint32_t hung_up_ = 0;  // sockets at whose end lies an end-of-file or an error
  uint32_t seen_generation_ = 0;
  uint32_t idle_tries_ = 0;
  uint64_t driven_ = 0;  // requests that drive has looked at
};

}  // namespace softtcpx
