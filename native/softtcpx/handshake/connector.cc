#include "softtcpx/handshake/connector.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "softtcpx/environment/log.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {
namespace {

using Clock = Connector::Clock;
constexpr std::chrono::milliseconds kRest{20};  // between two attempts
constexpr uint64_t kFinished = ~uint64_t{0};    // connect_state of a handle that was used up
constexpr std::chrono::minutes kForgotten{5};   // an attempt that nobody asks about any more
constexpr char kClosed[] = "the listener closed in the handshake";

sockaddr_in listener_address(const ListenHandle& handle) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = handle.address;
  address.sin_port = handle.port;
  return address;
}

// The attempts in progress. A handle names its own by a number; the address of its buffer is kept
// too, so that a copy of a handle in use is refused instead of sharing an attempt.
struct Attempt {
  Attempt(Device& device, const ListenHandle& handle, int traffic_class, const void* buffer_)
      : connector(device, handle, traffic_class), buffer(buffer_) {}

  Connector connector;
  const void* buffer;
  Clock::time_point asked{};
};

struct Attempts {
  std::mutex mutex;
  uint64_t next = 1;
  std::map<uint64_t, std::shared_ptr<Attempt>> running;
};

Attempts& attempts() {
  static Attempts* all = new Attempts;  // never destroyed: threads may outlive static objects
  return *all;
}

std::shared_ptr<Attempt> find_attempt(Device& device, ListenHandle* handle, int traffic_class) {
  Attempts& all = attempts();
  const Clock::time_point now = Clock::now();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (handle->connect_state == 0) {
    for (auto it = all.running.begin(); it != all.running.end();)
      it = now - it->second->asked > kForgotten ? all.running.erase(it) : std::next(it);
    handle->connect_state = all.next++;
    auto attempt = std::make_shared<Attempt>(device, *handle, traffic_class, handle);
    attempt->asked = now;
    all.running.emplace(handle->connect_state, attempt);
    return attempt;
  }
  const auto found = all.running.find(handle->connect_state);
  if (found == all.running.end() || found->second->buffer != handle) return nullptr;
  found->second->asked = now;
  return found->second;
}

void finish_attempt(ListenHandle* handle) {
  Attempts& all = attempts();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.running.erase(handle->connect_state);
  handle->connect_state = kFinished;
}

}  // namespace

Connector::Connector(Device& device, const ListenHandle& handle, int traffic_class)
    : device_(device),
      handle_(handle),
      traffic_class_(traffic_class),
      reach_by_(reach_deadline(Clock::now())) {}

Clock::time_point Connector::reach_deadline(Clock::time_point now) const {
  return now + std::chrono::milliseconds(device_.settings.connect_timeout_ms);
}

int Connector::advance(std::unique_ptr<SendComm>* comm) {
  const Clock::time_point now = Clock::now();
  if (state_ == State::kResting && now >= rest_until_) {
    if (begin_attempt()) state_ = State::kConnecting;
  }
  if (state_ != State::kResting && !move()) {
    // Who may take for ever to accept is still missed when the port is gone.
    if (state_ == State::kAsking && device_.settings.traps.no_manager != 0)
      return kNetInternalError;  // a trap: the accepting side alone knows why
    if (state_ == State::kAsking && answers_may_take_for_ever()) reach_by_ = reach_deadline(now);
    state_ = State::kResting;
  }
  if (answered_) {
    *comm = make_comm();
    return *comm != nullptr ? kNetSuccess : kNetSystemError;
  }
  if (!late(now)) return kNetSuccess;
  SOFTTCPX_WARN("connect to %s: %s%s%s; given up", address_text(listener_address(handle_)).c_str(),
                last_failure_, last_error_ != 0 ? ": " : "",
                last_error_ != 0 ? std::strerror(last_error_) : "");
  return kNetSystemError;
}

bool Connector::answers_may_take_for_ever() const {
  return device_.settings.answer_timeout_ms == 0;
}

// Reaching the port and waiting for accept have a deadline each: accept may come late.
bool Connector::late(Clock::time_point now) const {
  if (state_ == State::kAsking) return now > answer_by_ && !answers_may_take_for_ever();
  return now > reach_by_ && now > answer_by_;
}

bool Connector::begin_attempt() {
  const sockaddr_in target = listener_address(handle_);
  const size_t count = 1u + handle_.sockets;
  callers_.clear();
  challenges_ = {};
  if (!random_token(&attempt_)) return end_attempt("no random numbers", errno);
  for (size_t i = 0; i < count; ++i) {
    Fd fd = open_stream_socket();
    if (!fd.valid()) return end_attempt("no socket", errno);
    // A sender never reads from a data socket. The control socket has the same algorithm: whoever
    // looks at the connection from outside finds one.
    apply_options(fd.get(), device_.settings.congestion,
                  i > 0 ? device_.settings.send_buffer_bytes : 0, 0);
    // From the address of our own device, so that its NIC carries the traffic.
    const sockaddr_in& own = device_.interface.address;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (traffic_class_ >= 0 &&
        ::setsockopt(fd.get(), IPPROTO_IP, IP_TOS, &traffic_class_, sizeof traffic_class_) != 0)
      return end_attempt("a traffic class", errno);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
      return end_attempt("bind to the device's address", errno);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0 &&
        errno != EINPROGRESS)
      return end_attempt("connect", errno);
    callers_.emplace_back();
    callers_.back().fd = std::move(fd);
    callers_.back().hello = make_hello(static_cast<int>(i), handle_.sockets, attempt_);
  }
  return true;
}

bool Connector::end_attempt(const char* why, int error_number) {
  if (lacks_files(error_number) && !std::exchange(lack_of_files_told_, true))
    SOFTTCPX_WARN("connect to %s: %s: %s; tried again",
                  address_text(listener_address(handle_)).c_str(), why,
                  std::strerror(error_number));
  last_failure_ = why;
  last_error_ = error_number;
  callers_.clear();
  rest_until_ = Clock::now() + kRest;
  return false;
}

bool Connector::move() {
  std::vector<pollfd> polled;
  for (const Caller& caller : callers_) {
    const bool reached = caller.said != Caller::Said::kNothing;
    polled.push_back({caller.fd.get(), static_cast<short>(reached ? POLLIN : POLLOUT), 0});
  }
  if (::poll(polled.data(), polled.size(), 0) <= 0) return true;
  bool all_greeted = true;
  for (size_t i = 0; i < callers_.size(); ++i) {
    if (polled[i].revents != 0 && !advance_caller(callers_[i])) return false;
    if (answered_) return true;  // whatever the data sockets say now, it is the connection's
    all_greeted = all_greeted && callers_[i].said != Caller::Said::kNothing;
  }
  if (all_greeted && state_ == State::kConnecting) {
    state_ = State::kAsking;
    if (answer_by_ == Clock::time_point{} && !answers_may_take_for_ever())
      answer_by_ = Clock::now() + std::chrono::milliseconds(device_.settings.answer_timeout_ms);
  }
  return true;
}

bool Connector::advance_caller(Caller& caller) {
  if (caller.said == Caller::Said::kNothing) return greet(caller);
  if (caller.said == Caller::Said::kProof && caller.hello.socket > 0)
    return end_attempt("the listener closed a data connection in the handshake", 0);
  switch (hear(caller.fd.get(), caller.bytes, sizeof caller.bytes, &caller.have)) {
    case Heard::kEnded:
      return end_attempt(kClosed, errno);
    case Heard::kPart:
      return true;
    case Heard::kAll:
      break;
  }
  caller.have = 0;
  return caller.said == Caller::Said::kHello ? prove(caller) : judge_answer(caller);
}

bool Connector::greet(Caller& caller) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(caller.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return end_attempt("connect", error);
  if (!say(caller.fd.get(), &caller.hello, sizeof caller.hello)) return end_attempt(kClosed, errno);
  caller.said = Caller::Said::kHello;
  return true;
}

bool Connector::prove(Caller& caller) {
  Token challenge;
  const GreetingVerdict verdict = judge_challenge(caller.bytes, caller.hello, &challenge);
  if (verdict != GreetingVerdict::kWelcome) return end_attempt(verdict_text(verdict), 0);
  const Greeting proof = make_proof(handle_, caller.hello, challenge);
  if (!say(caller.fd.get(), &proof, sizeof proof)) return end_attempt(kClosed, errno);
  challenges_[caller.hello.socket] = challenge;
  caller.said = Caller::Said::kProof;
  return true;
}

// It is over the challenges of all sockets: before they are there, nobody's answer is right.
bool Connector::judge_answer(const Caller& control) {
  const GreetingVerdict verdict =
      judge_proof(control.bytes, make_answer(handle_, attempt_, challenges_));
  if (verdict != GreetingVerdict::kWelcome) return end_attempt(verdict_text(verdict), 0);
  answered_ = true;
  return true;
}

std::unique_ptr<SendComm> Connector::make_comm() {
  Sockets sockets;
  sockets.control = std::move(callers_[0].fd);
  for (size_t i = 1; i < callers_.size(); ++i) sockets.data.push_back(std::move(callers_[i].fd));
  sockets.threads = handle_.threads;
  sockets.peer = listener_address(handle_);
  auto comm = std::make_unique<SendComm>(device_, std::move(sockets));
  if (comm->start()) return comm;
  SOFTTCPX_WARN("connect to %s: %s", address_text(listener_address(handle_)).c_str(),
                std::strerror(errno));
  return nullptr;
}

int connect_step(Device& device, void* buffer, int traffic_class, std::unique_ptr<SendComm>* comm) {
  auto* handle = static_cast<ListenHandle*>(buffer);
  if (!valid_listen_handle(*handle)) return kNetInvalidArgument;
  if (traffic_class < -1 || traffic_class > 255) {
    SOFTTCPX_WARN("connect with a traffic class of %d: IP has 0 to 255", traffic_class);
    return kNetInvalidArgument;
  }
  if (handle->flags != (device.settings.recv_sync != 0 ? kRecvSync : 0)) {
    SOFTTCPX_WARN("NCCL_GPUDIRECTTCPX_RECV_SYNC is %lld here and %u at the listener",
                  static_cast<long long>(device.settings.recv_sync), handle->flags);
    return kNetInvalidUsage;
  }
  if (device.settings.traps.no_peer != 0) return kNetSuccess;  // a trap: not yet, for ever
  const std::shared_ptr<Attempt> attempt = find_attempt(device, handle, traffic_class);
  if (attempt == nullptr) {
    SOFTTCPX_WARN("connect with a handle that was used up, or with a copy of one in use");
    return kNetInvalidUsage;
  }
  const int code = attempt->connector.advance(comm);
  if (code != kNetSuccess || *comm != nullptr) finish_attempt(handle);
  return code;
}

}  // namespace softtcpx
