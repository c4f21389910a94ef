// The connecting side of a handshake: tries until the listener answers, without ever waiting.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <vector>

#include "softtcpx/environment/socket.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/send_comm.h"

namespace softtcpx {

class Connector {
 public:
  using Clock = std::chrono::steady_clock;

  Connector(Device& device, const ListenHandle& handle, int traffic_class);

  // Success with no comm: ask again.
  int advance(std::unique_ptr<SendComm>* comm);

 private:
  enum class State {
    kResting,     // the next attempt begins at rest_until_
    kConnecting,  // sockets on their way; each says hello as soon as it is there
    kAsking,      // all hellos are said; challenges, or the answer, are not whole
  };
  struct Caller {  // a socket of the attempt: the control socket, then the data sockets
    enum class Said { kNothing, kHello, kProof } said = Said::kNothing;
    Fd fd;
    Greeting hello{};
    uint32_t have = 0;  // bytes of what it hears next
    GreetingBytes bytes;
  };

  Clock::time_point reach_deadline(Clock::time_point now) const;
  bool answers_may_take_for_ever() const;
  bool late(Clock::time_point now) const;
  bool begin_attempt();
  bool move();  // one pass over the sockets; false ends the attempt
  bool advance_caller(Caller& caller);
  bool greet(Caller& caller);
  bool prove(Caller& caller);
  bool judge_answer(const Caller& control);
  // Always false, for the step that failed to pass on.
  bool end_attempt(const char* why, int error_number);
  std::unique_ptr<SendComm> make_comm();

  Device& device_;
  const ListenHandle handle_;
  const int traffic_class_;  // -1: none
  Clock::time_point reach_by_;
  Clock::time_point answer_by_{};  // from the moment that the port took all sockets; unset: none
  Clock::time_point rest_until_{};
  State state_ = State::kResting;
  bool answered_ = false;
  const char* last_failure_ = "the listener did not answer";
  int last_error_ = 0;
  bool lack_of_files_told_ = false;  // once: attempts are many

  Token attempt_{};
  Challenges challenges_{};
  std::vector<Caller> callers_;
};

// One call of the table's connect: finds or begins the attempt that the handle's buffer stands for.
// A `traffic_class` is that of IP, 0 to 255, whose two lowest bits are TCP's own; -1: none.
int connect_step(Device& device, void* handle, int traffic_class, std::unique_ptr<SendComm>* comm);

}  // namespace softtcpx
