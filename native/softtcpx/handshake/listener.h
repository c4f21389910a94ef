// The listening side of a handshake: one port, strangers sorted until one connection is full.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "softtcpx/environment/objects.h"
#include "softtcpx/environment/socket.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/recv_comm.h"

namespace softtcpx {

class Listener : public Object {
 public:
  explicit Listener(Device& device) : Object(ObjectKind::kListener), device_(device) {}

  // Opens the port and fills the handle; gives NCCL's codes.
  int open(ListenHandle* handle);

  // Never waits. Success with no comm: nothing full has come yet. After the one comm that a
  // listener makes it has no sockets left, and asking again is an error.
  int accept(std::unique_ptr<RecvComm>* comm);

  const Gpu& gpu() const { return gpu_; }  // whose context was current at listen

 private:
  using Clock = std::chrono::steady_clock;

  struct Stranger {  // has connected and not proved yet that it has the handle
    Fd fd;
    sockaddr_in address{};
    Clock::time_point since;  // it came, or was challenged
    bool challenged = false;
    Greeting hello{};
    Token challenge{};
    uint32_t have = 0;  // bytes of what it says next
    GreetingBytes bytes;
  };
  struct Group {  // sockets of one attempt to connect, each of which has proved it
    Token attempt{};
    std::vector<Fd> sockets;  // the control socket, then the data sockets
    Challenges challenges{};
    sockaddr_in peer{};
    Clock::time_point whole_since{};

    bool full() const;
  };

  int workers() const;
  int take_strangers(Clock::time_point now);
  bool make_room(Clock::time_point now);
  void hear_strangers(Clock::time_point now);
  bool challenge(Stranger& stranger, Clock::time_point now);
  bool admit(Stranger& stranger);
  static bool refuse(const Stranger& stranger, const char* why);
  bool answer(const Group& group);
  int fail_without_manager();
  std::unique_ptr<RecvComm> make_comm(Group& group);
  void close_all();

  Device& device_;
  const Gpu gpu_ = current_gpu();
  Fd port_;
  ListenHandle handle_{};
  std::vector<Stranger> strangers_;  // oldest first
  std::vector<Group> groups_;        // oldest first
  std::optional<Group> late_;        // answered, and of a trap not told yet
  Clock::time_point late_until_{};
  bool lack_of_files_told_ = false;  // once: strangers are many
};

}  // namespace softtcpx
