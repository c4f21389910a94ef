#include "softtcpx/connector.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "softtcpx/device.h"
#include "softtcpx/log.h"

namespace softtcpx {
namespace {

using Clock = Connector::Clock;
constexpr std::chrono::milliseconds kRest{20};  // between two attempts
constexpr uint64_t kFinished = ~uint64_t{0};    // connect_state of a handle that was used up
constexpr std::chrono::minutes kForgotten{5};   // an attempt that nobody asks about any more

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
  Attempt(Device& device, const ListenHandle& handle, const void* buffer_)
      : connector(device, handle), buffer(buffer_) {}

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

std::shared_ptr<Attempt> find_attempt(Device& device, ListenHandle* handle) {
  Attempts& all = attempts();
  const Clock::time_point now = Clock::now();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (handle->connect_state == 0) {
    for (auto it = all.running.begin(); it != all.running.end();)
      it = now - it->second->asked > kForgotten ? all.running.erase(it) : std::next(it);
    handle->connect_state = all.next++;
    auto attempt = std::make_shared<Attempt>(device, *handle, handle);
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

Connector::Connector(Device& device, const ListenHandle& handle)
    : device_(device),
      handle_(handle),
      reach_by_(Clock::now() + std::chrono::milliseconds(device.settings.connect_timeout_ms)) {}

int Connector::advance(std::unique_ptr<SendComm>* comm) {
  const Clock::time_point now = Clock::now();
  if (state_ == State::kResting && now >= rest_until_) {
    if (begin_attempt()) state_ = State::kConnecting;
  }
  if (state_ != State::kResting && !move()) state_ = State::kResting;
  if (answered_) {
    *comm = make_comm();
    return *comm != nullptr ? kNetSuccess : kNetSystemError;
  }
  // Reaching the port and waiting for accept have a deadline each: accept may come late.
  const bool late =
      state_ == State::kAsking ? now > answer_by_ : now > reach_by_ && now > answer_by_;
  if (!late) return kNetSuccess;
  SOFTTCPX_WARN("connect to %s: %s%s%s; given up", address_text(listener_address(handle_)).c_str(),
                last_failure_, last_error_ != 0 ? ": " : "",
                last_error_ != 0 ? std::strerror(last_error_) : "");
  return kNetSystemError;
}

bool Connector::begin_attempt() {
  const sockaddr_in target = listener_address(handle_);
  const size_t count = 1u + handle_.sockets;
  sockets_.clear();
  greeted_.assign(count, false);
  have_ = 0;
  if (!random_token(&connection_)) return end_attempt("no random numbers", errno);
  for (size_t i = 0; i < count; ++i) {
    Fd fd = open_stream_socket();
    if (!fd.valid()) return end_attempt("no socket", errno);
    apply_sender_options(fd.get(), device_.settings, /*carries_data=*/i > 0);
    // From the address of our own device, so that its NIC carries the traffic.
    const sockaddr_in& own = device_.interface.address;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
      return end_attempt("bind to the device's address", errno);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0 &&
        errno != EINPROGRESS)
      return end_attempt("connect", errno);
    sockets_.push_back(std::move(fd));
  }
  return true;
}

bool Connector::end_attempt(const char* why, int error_number) {
  last_failure_ = why;
  last_error_ = error_number;
  sockets_.clear();
  rest_until_ = Clock::now() + kRest;
  return false;
}

bool Connector::move() {
  std::vector<pollfd> polled;
  for (size_t i = 0; i < sockets_.size(); ++i)
    polled.push_back({sockets_[i].get(), static_cast<short>(greeted_[i] ? POLLIN : POLLOUT), 0});
  if (::poll(polled.data(), polled.size(), 0) <= 0) return true;
  bool all_greeted = true;
  for (size_t i = 0; i < sockets_.size(); ++i) {
    if (polled[i].revents != 0) {
      if (!greeted_[i]) {
        if (!greet(i)) return false;
      } else if (i > 0) {
        return end_attempt("the listener closed a data connection in the handshake", 0);
      } else if (!hear_answer(&answered_)) {
        return false;
      } else if (answered_) {
        return true;  // whatever the data sockets say now, it is the connection's to handle
      }
    }
    all_greeted = all_greeted && greeted_[i];
  }
  if (all_greeted && state_ == State::kConnecting) {
    state_ = State::kAsking;
    if (answer_by_ == Clock::time_point{})
      answer_by_ = Clock::now() + std::chrono::milliseconds(device_.settings.answer_timeout_ms);
  }
  return true;
}

bool Connector::greet(size_t socket) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(sockets_[socket].get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return end_attempt("connect", error);
  const Hello hello =
      socket == 0 ? make_hello(HelloKind::kControl, 0, handle_.sockets, connection_, handle_.secret)
                  : make_hello(HelloKind::kData, static_cast<int>(socket) - 1, handle_.sockets,
                               connection_, handle_.secret);
  // The first bytes of a fresh connection always fit into its buffer.
  if (::send(sockets_[socket].get(), &hello, sizeof hello, MSG_DONTWAIT | MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof hello))
    return end_attempt("the listener closed in the handshake", errno);
  greeted_[socket] = true;
  return true;
}

bool Connector::hear_answer(bool* answered) {
  const ssize_t got =
      ::recv(sockets_[0].get(), answer_bytes_ + have_, sizeof answer_bytes_ - have_, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return end_attempt("the listener closed in the handshake", got < 0 ? errno : 0);
  have_ += static_cast<uint32_t>(got);
  if (have_ < sizeof answer_bytes_) return true;
  const HelloVerdict verdict =
      judge_answer(answer_bytes_, handle_.answer, connection_, handle_.sockets);
  if (verdict != HelloVerdict::kWelcome) return end_attempt(verdict_text(verdict), 0);
  *answered = true;
  return true;
}

std::unique_ptr<SendComm> Connector::make_comm() {
  Sockets sockets;
  sockets.control = std::move(sockets_[0]);
  for (size_t i = 1; i < sockets_.size(); ++i) sockets.data.push_back(std::move(sockets_[i]));
  sockets.threads = handle_.threads;
  sockets.peer = listener_address(handle_);
  auto comm = std::make_unique<SendComm>(device_, std::move(sockets));
  if (comm->start()) return comm;
  SOFTTCPX_WARN("connect to %s: %s", address_text(listener_address(handle_)).c_str(),
                std::strerror(errno));
  return nullptr;
}

int connect_step(Device& device, void* buffer, std::unique_ptr<SendComm>* comm) {
  auto* handle = static_cast<ListenHandle*>(buffer);
  if (!valid_listen_handle(*handle)) return kNetInvalidArgument;
  if (handle->flags != (device.settings.recv_sync != 0 ? kRecvSync : 0)) {
    SOFTTCPX_WARN("NCCL_GPUDIRECTTCPX_RECV_SYNC is %lld here and %u at the listener",
                  static_cast<long long>(device.settings.recv_sync), handle->flags);
    return kNetInvalidUsage;
  }
  if (device.settings.traps.no_peer != 0) return kNetSuccess;  // a trap: not yet, for ever
  const std::shared_ptr<Attempt> attempt = find_attempt(device, handle);
  if (attempt == nullptr) {
    SOFTTCPX_WARN("connect with a handle that was used up, or with a copy of one in use");
    return kNetInvalidUsage;
  }
  const int code = attempt->connector.advance(comm);
  if (code != kNetSuccess || *comm != nullptr) finish_attempt(handle);
  return code;
}

}  // namespace softtcpx
