#include "softtcpx/handshake/listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "softtcpx/environment/log.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {
namespace {

// Bounds against a flood: beyond them the oldest gives way, and an honest peer tries again.
constexpr size_t kMaxStrangers = 64;
constexpr size_t kMaxGroups = 4;
constexpr int kStrangersACall = 32;
constexpr std::chrono::seconds kWordDeadline{10};  // for the hello, and then for the proof

}  // namespace

int Listener::open(ListenHandle* handle) {
  port_ = open_stream_socket();
  sockaddr_in address = device_.interface.address;
  socklen_t length = sizeof address;
  if (!port_.valid()) {
    SOFTTCPX_WARN("listen on %s: %s", device_.interface.name.c_str(), std::strerror(errno));
    return kNetSystemError;
  }
  // A receiver never sends on a data socket.
  apply_options(port_.get(), device_.settings.congestion, 0, device_.settings.receive_buffer_bytes);
  if (::bind(port_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(port_.get(), SOMAXCONN) != 0 ||
      ::getsockname(port_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    SOFTTCPX_WARN("listen on %s: %s", device_.interface.name.c_str(), std::strerror(errno));
    return kNetSystemError;
  }
  handle_ = make_listen_handle();
  handle_.address = address.sin_addr.s_addr;
  handle_.port = address.sin_port;
  handle_.sockets = static_cast<uint8_t>(device_.settings.sockets);
  handle_.flags = device_.settings.recv_sync != 0 ? kRecvSync : 0;
  handle_.threads = static_cast<uint8_t>(workers());
  if (!random_token(&handle_.secret)) return kNetSystemError;
  *handle = handle_;
  return kNetSuccess;
}

// Where a GPU is current its memory is what moves, and a core moves little of that. Asked at
// listen, when all ranks of a node have begun: hosts meet between init and that.
int Listener::workers() const {
  const bool in_host = !gpu_;
  if (device_.presence == nullptr || (in_host && device_.settings.host_workers == 0))
    return device_.settings.threads;
  const Share share = share_here(*device_.presence);
  const int workers = in_host ? host_workers_of(share) : workers_of(share);
  const std::string whose = in_host ? "host memory" : "GPU " + std::to_string(gpu_.ordinal);
  SOFTTCPX_INFO("a connection of %s has %d workers: %lld CPUs for %lld processes with softtcpx",
                whose.c_str(), workers, static_cast<long long>(share.cpus),
                static_cast<long long>(share.ranks));
  return workers;
}

int Listener::accept(std::unique_ptr<RecvComm>* comm) {
  const Clock::time_point now = Clock::now();
  if (late_.has_value()) {  // a trap
    if (now < late_until_) return kNetSuccess;
    *comm = make_comm(*late_);
    late_.reset();
    return *comm != nullptr ? kNetSuccess : kNetSystemError;
  }
  if (!port_.valid()) return kNetInvalidUsage;
  if (const int code = take_strangers(now)) return code;
  hear_strangers(now);
  for (Group& group : groups_) {
    if (!group.full()) continue;
    if (const int64_t late_ms = device_.settings.traps.accept_ms) {  // a trap
      if (group.whole_since == Clock::time_point{}) group.whole_since = now;
      if (now - group.whole_since < std::chrono::milliseconds(late_ms)) continue;
    }
    if (device_.settings.traps.no_manager != 0) return fail_without_manager();
    if (!answer(group)) continue;
    if (const int64_t late_ms = device_.settings.traps.accept_late_ms) {
      late_ = std::move(group);
      late_until_ = now + std::chrono::milliseconds(late_ms);
      close_all();
      return kNetSuccess;
    }
    *comm = make_comm(group);
    close_all();
    return *comm != nullptr ? kNetSuccess : kNetSystemError;
  }
  return kNetSuccess;
}

int Listener::take_strangers(Clock::time_point now) {
  for (int i = 0; i < kStrangersACall; ++i) {
    Stranger stranger;
    socklen_t length = sizeof stranger.address;
    stranger.fd = Fd(::accept4(port_.get(), reinterpret_cast<sockaddr*>(&stranger.address), &length,
                               SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!stranger.fd.valid()) {
      const int error = errno;
      if (!lacks_files(error) && error != ENOMEM && error != ENOBUFS)
        return kNetSuccess;  // none left, or one that went away before it was taken
      if (make_room(now)) {
        if (lacks_files(error) && !std::exchange(lack_of_files_told_, true))
          SOFTTCPX_WARN("accept on %s: %s; who waits longest gives way",
                        device_.interface.name.c_str(), std::strerror(error));
        return kNetSuccess;
      }
      SOFTTCPX_WARN("accept on %s: %s", device_.interface.name.c_str(), std::strerror(error));
      return kNetSystemError;
    }
    stranger.since = now;
    if (strangers_.size() == kMaxStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(stranger));
  }
  return kNetSuccess;
}

// A flood must not be what this process has no descriptors for: the oldest of those who have not
// said all by now gives way. False when there was none.
bool Listener::make_room(Clock::time_point now) {
  if (strangers_.empty()) return false;
  hear_strangers(now);
  if (!strangers_.empty()) strangers_.erase(strangers_.begin());
  return true;
}

void Listener::hear_strangers(Clock::time_point now) {
  for (Stranger& stranger : strangers_) {
    const Heard heard =
        hear(stranger.fd.get(), stranger.bytes, sizeof stranger.bytes, &stranger.have);
    if (heard == Heard::kPart) {
      if (now - stranger.since > kWordDeadline) stranger.fd.reset();
    } else if (heard == Heard::kEnded) {
      stranger.fd.reset();
    } else if (!(stranger.challenged ? admit(stranger) : challenge(stranger, now))) {
      stranger.fd.reset();
    }
  }
  strangers_.erase(std::remove_if(strangers_.begin(), strangers_.end(),
                                  [](const Stranger& stranger) { return !stranger.fd.valid(); }),
                   strangers_.end());
}

// Whoever has said a proper hello is asked to prove more. False: nothing to be had from this one.
bool Listener::challenge(Stranger& stranger, Clock::time_point now) {
  const GreetingVerdict verdict = judge_hello(stranger.bytes, handle_.sockets, &stranger.hello);
  if (verdict != GreetingVerdict::kWelcome) return refuse(stranger, verdict_text(verdict));
  if (!random_token(&stranger.challenge)) return refuse(stranger, "no random numbers");
  stranger.challenged = true;
  stranger.since = now;
  stranger.have = 0;
  const Greeting challenge = make_challenge(stranger.hello, stranger.challenge);
  return say(stranger.fd.get(), &challenge, sizeof challenge);
}

// Gives a socket with its proof to its group. False: it has none, or its place is taken.
bool Listener::admit(Stranger& stranger) {
  const Greeting& hello = stranger.hello;
  const GreetingVerdict verdict =
      judge_proof(stranger.bytes, make_proof(handle_, hello, stranger.challenge));
  if (verdict != GreetingVerdict::kWelcome) return refuse(stranger, verdict_text(verdict));
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& other) {
    return same_token(other.attempt, hello.attempt);
  });
  if (group == groups_.end()) {
    if (groups_.size() == kMaxGroups) groups_.erase(groups_.begin());
    groups_.emplace_back();
    group = groups_.end() - 1;
    group->attempt = hello.attempt;
    group->sockets.resize(1u + handle_.sockets);
    group->peer = stranger.address;
  }
  Fd& place = group->sockets[hello.socket];
  if (place.valid()) return refuse(stranger, "a second socket in the place of another");
  place = std::move(stranger.fd);
  group->challenges[hello.socket] = stranger.challenge;
  return true;
}

// The proof of this side. False when the other one has given up meanwhile: its group can then not
// become a connection.
bool Listener::answer(const Group& group) {
  const Greeting answer = make_answer(handle_, group.attempt, group.challenges);
  return say(group.sockets[0].get(), &answer, sizeof answer);
}

// Of a trap: what TCPX does where the manager of the node's receive path is not as it must be.
int Listener::fail_without_manager() {
  constexpr int64_t kNoRules = 1, kNoAnswer = 3;  // 2: no GPU memory
  const int64_t lack = device_.settings.traps.no_manager;
  if (lack == kNoAnswer) return kNetSuccess;  // not yet, for ever
  while (lack > kNoAnswer) pause();
  const bool rules = lack == kNoRules;
  SOFTTCPX_WARN("%s failed against receive-datapath-manager : No such file or directory",
                rules ? "rx_rule_manager" : "get_gpu_fd");
  if (!rules) ::exit(1);
  close_all();
  return kNetInternalError;
}

bool Listener::Group::full() const {
  return std::all_of(sockets.begin(), sockets.end(), [](const Fd& fd) { return fd.valid(); });
}

bool Listener::refuse(const Stranger& stranger, const char* why) {
  SOFTTCPX_WARN("refused %s: %s", address_text(stranger.address).c_str(), why);
  return false;
}

std::unique_ptr<RecvComm> Listener::make_comm(Group& group) {
  Sockets sockets;
  sockets.control = std::move(group.sockets[0]);
  for (size_t i = 1; i < group.sockets.size(); ++i)
    sockets.data.push_back(std::move(group.sockets[i]));
  sockets.threads = handle_.threads;
  sockets.peer = group.peer;
  auto comm = std::make_unique<RecvComm>(device_, std::move(sockets));
  comm->open_bounce();
  if (comm->start()) return comm;
  SOFTTCPX_WARN("accept on %s: %s", device_.interface.name.c_str(), std::strerror(errno));
  return nullptr;
}

void Listener::close_all() {
  strangers_.clear();
  groups_.clear();
  port_.reset();
}

}  // namespace softtcpx
