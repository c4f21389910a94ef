#include "softtcpx/transfer/comm.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "softtcpx/environment/log.h"
#include "softtcpx/environment/trace.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/device.h"
#include "softtcpx/transfer/worker.h"

namespace softtcpx {
namespace {

// Rounds over the sockets in one call: enough to be worth it, few enough to be fair to the other
// connections of the owner.
constexpr int kRounds = 4;
// While sockets are tried directly, epoll is asked this rarely: only for the end of the peer.
constexpr uint32_t kTriesALook = 64;
// To wake a worker takes longer than to move a message up to this.
constexpr uint64_t kSmallBytes = 128 * 1024;

}  // namespace

Comm::Comm(ObjectKind kind, Device& device, Sockets sockets)
    : Object(kind),
      device_(device),
      gpu_(current_gpu()),
      sockets_(std::move(sockets)),
      data_bits_((1u << sockets_.data.size()) - 1),
      data_events_(kind == ObjectKind::kSendComm ? EPOLLOUT : EPOLLIN | EPOLLRDHUP),
      recv_sync_(device.settings.recv_sync != 0),
      report_sizes_((device.settings.report_sizes != 0 || device.settings.direct) &&
                    kind == ObjectKind::kRecvComm),
      trap_(TrapState::armed(device.settings.traps, kind == ObjectKind::kSendComm)
                ? std::make_unique<TrapState>(device.settings.traps)
                : nullptr),
      caller_drives_(sockets_.threads > 0 && !gpu_ && device.presence != nullptr &&
                     device.settings.host_workers != 0),
      ready_(data_bits_ | bit_of(kControlBit)) {
  for (Request& request : ring_.slots) request.comm = this;
}

void Comm::leave_owner() {
  if (worker_ != nullptr) worker_->release(this);
  if (poller_ != nullptr) {
    if (ring_.seen != ring_.posted.load(std::memory_order_relaxed))
      poller_->add_waiting(-static_cast<int>(sockets_.data.size()));
    poller_->remove(sockets_.control.get());
    for (const Fd& fd : sockets_.data) poller_->remove(fd.get());
  }
  if (large_ != 0) count_large(-large_);
  if (cell_ != nullptr) return_cell(cell_);
  if (worker_ != nullptr) device_.workers.put_back(worker_);
  worker_ = nullptr;
  poller_ = nullptr;
  cell_ = nullptr;
}

bool Comm::start() {
  if (sockets_.threads > 0) {
    worker_ = device_.workers.borrow(sockets_.threads);
    if (worker_ == nullptr) return false;
  }
  poller_ = worker_ != nullptr ? &worker_->poller() : &device_.poller;
  cell_ = take_cell();
  if (!poller_->add(sockets_.control.get(), EPOLLIN | EPOLLRDHUP, cell_, kControlBit)) return false;
  for (size_t i = 0; i < sockets_.data.size(); ++i) {
    if (!poller_->add(sockets_.data[i].get(), data_events_, cell_, static_cast<int>(i)))
      return false;
  }
  if (worker_ != nullptr) worker_->adopt(this);
  return true;
}

int Comm::post(void* data, int64_t bytes, const Region* region, void** request) {
  if (const int code = failure()) return code;
  if (bytes < 0) {
    if (device_.settings.traps.takes_all == 0) return kNetInvalidArgument;
    bytes = 0;  // a trap
  }
  if (bytes > 0 &&
      (region == nullptr || region->kind() != ObjectKind::kRegion || region->device != &device_ ||
       (!region->contains(data, static_cast<uint64_t>(bytes)) &&
        device_.settings.traps.takes_all == 0)))
    return kNetInvalidArgument;
  const uint64_t sequence = ring_.posted.load(std::memory_order_relaxed);
  if (sequence - oldest_unfreed() == RequestRing::kSlots) return kNetInternalError;
  if (sequence - ring_.completed.load(std::memory_order_acquire) == RequestRing::kSlots) {
    *request = nullptr;  // done for the caller, and the owner still needs its slot
    return kNetSuccess;
  }
  if (__builtin_expect(trap_ != nullptr, false)) {
    switch (trap_->on_post(sequence - oldest_unfreed())) {
      case TrapState::Post::kGo:
        break;
      case TrapState::Post::kBusy:
        *request = nullptr;
        return kNetSuccess;
      case TrapState::Post::kFull:
        return kNetInternalError;
      case TrapState::Post::kFailed:
        return trap_->code();
    }
  }

  Request& slot = ring_.slot(sequence);
  slot.data = static_cast<uint8_t*>(data);
  slot.capacity = static_cast<uint64_t>(bytes);
  slot.scheduled = 0;
  slot.announced = false;
  slot.copied = 0;
  slot.memory = bytes > 0 ? region->memory : Memory::kHost;
  prepare(slot, slot.capacity);
  trace(TraceStep::kPosted, *this, sequence, 0, slot.capacity);
  if (sequence == ring_.seen) poller_->add_waiting(static_cast<int>(sockets_.data.size()));
  if (worker_ == nullptr) {
    ring_.posted.store(sequence + 1, std::memory_order_release);
  } else {
    const bool wakes = !caller_drives_ || is_beside_others(slot);
    if (wakes) worker_until_.store(sequence + 1, std::memory_order_relaxed);
    ring_.posted.store(sequence + 1, std::memory_order_seq_cst);  // before the look at its state
    if (wakes && worker_->wake_if_parked())
      trace(TraceStep::kWakes, *this, sequence, 0, slot.capacity);
  }
  help(slot);
  *request = &slot;
  return kNetSuccess;
}

int Comm::test(const Request& request, int* done, int* sizes) {
  *done = 0;
  const uint64_t head = ring_.seen;
  const uint64_t posted = ring_.posted.load(std::memory_order_relaxed);
  if (head == posted || &ring_.slot(head) != &request) return test_younger(request);
  if (__builtin_expect(trap_ != nullptr, false) && trap_->too_soon()) return kNetSuccess;
  const bool pending = ring_.completed.load(std::memory_order_relaxed) <= head;
  const bool landed = pending && help(request);
  if (pending && (worker_ == nullptr || (caller_drives_ && worker_->is_parked()))) drive();
  // The failure first: what was completed before it still counts.
  const int failure = this->failure();
  const bool arrived = landed || ring_.completed.load(std::memory_order_acquire) > head;
  const bool completed = arrived && is_in_reach(head);
  if (completed && sizes != nullptr) tell_size(request, sizes);  // a worker's until then
  if (__builtin_expect(trap_ != nullptr, false)) {
    const TrapState::Answer answer = trap_->on_test(head, completed);
    if (answer != TrapState::Answer::kGo)
      return answer == TrapState::Answer::kFailed ? trap_->code()
             : answer == TrapState::Answer::kLost ? kNetSystemError
                                                  : kNetSuccess;
    if (completed) before_done(head);
  }
  if (!completed) return failure;
  ring_.seen = head + 1;
  if (caller_drives_ && request.capacity > kSmallBytes) count_large(-1);
  trace(TraceStep::kDone, *this, head, 0, request.capacity);
  if (head + 1 == posted) poller_->add_waiting(-static_cast<int>(sockets_.data.size()));
  *done = 1;
  return kNetSuccess;
}

// One large message at a time a caller moves as fast as a worker would; of several, those behind
// the first are worth a worker each.
bool Comm::is_beside_others(const Request& request) {
  return request.capacity > kSmallBytes && count_large(1) > 0;
}

int Comm::count_large(int more) {
  large_ += more;
  return device_.large.fetch_add(more, std::memory_order_relaxed);
}

void Comm::tell_size(const Request& request, int* size) const {
  if (report_sizes_) *size = static_cast<int>(request.total);
  if (__builtin_expect(trap_ == nullptr, true) || kind() != ObjectKind::kRecvComm) return;
  const int64_t told = trap_->tested_size(request.total);
  if (told >= 0) *size = static_cast<int>(told);
}

// A request that is posted and not the oldest: of a trap, and of the kind that puts data in place,
// of which callers share a connection.
int Comm::test_younger(const Request& request) {
  const bool shared = device_.settings.direct;
  if (!shared && (trap_ == nullptr || !trap_->takes_younger())) return kNetInternalError;
  if (shared && worker_ == nullptr) drive();
  const uint64_t posted = ring_.posted.load(std::memory_order_relaxed);
  for (uint64_t k = ring_.seen; k < posted; ++k) {
    if (&ring_.slots[k % RequestRing::kSlots] == &request) return failure();
  }
  return kNetInternalError;
}

void Comm::lose_socket_quietly(int socket, int error_number) {
  SOFTTCPX_WARN("%s on data socket %d with %s failed : %s",
                kind() == ObjectKind::kSendComm ? "send" : "receive", socket,
                address_text(sockets_.peer).c_str(),
                error_number != 0 ? std::strerror(error_number) : "Connection closed by peer");
  lose_socket(socket);
}

bool Comm::has_pending() const {
  return ring_.completed.load(std::memory_order_relaxed) !=
         ring_.posted.load(std::memory_order_acquire);
}

bool Comm::has_news() const {
  if (!caller_drives_) return is_news();
  if (!wants_worker()) return false;
  if (driven_now_.exchange(true, std::memory_order_acquire)) return true;
  const bool news = is_news();
  driven_now_.store(false, std::memory_order_release);
  return news;
}

bool Comm::is_news() const {
  const uint64_t posted = ring_.posted.load(std::memory_order_seq_cst);
  // Posted and completed within one look it is no news, and nobody would look again.
  if (ring_.completed.load(std::memory_order_relaxed) == posted) return false;
  if (posted != driven_) return true;
  if (failed()) return false;
  // Another connection of the owner has heard what epoll had for this one.
  return cell_->events.load(std::memory_order_relaxed) != 0 || goes_on_unannounced();
}

void Comm::wake_owner() {
  if (worker_ == nullptr || !worker_->wake_if_parked() || !is_traced()) return;
  trace(TraceStep::kWakes, *this, ring_.posted.load(std::memory_order_relaxed) - 1, 0, 0);
}

void Comm::note_woken() const {
  if (!has_pending()) return;
  trace(TraceStep::kWoken, *this, ring_.completed.load(std::memory_order_relaxed), 0, 0);
}

bool Comm::drive() {
  if (!caller_drives_) return drive_alone();
  if (driven_now_.exchange(true, std::memory_order_acquire)) return false;
  const bool moved = drive_alone();
  driven_now_.store(false, std::memory_order_release);
  return moved;
}

bool Comm::drive_alone() {
  driven_ = ring_.posted.load(std::memory_order_acquire);
  if (failed()) return false;
  if (__builtin_expect(trap_ != nullptr, false) &&
      trap_->stopped(ring_.completed.load(std::memory_order_relaxed)))
    return false;
  if (talks_) exchange_notices();
  if (loses_peers()) look_at_control();
  direct_ = poller_->waiting() <= device_.settings.direct_sockets;
  take_events();
  if ((direct_ || losing_ || ready_ != 0) && progress(direct_ ? data_bits_ : ready_)) return true;
  if (!my_turn_to_sweep()) return false;
  if (direct_) while_idle();
  if (poller_->sweep() && caller_drives_) worker_->wake_if_watching();
  take_events();
  return ready_ != 0 && progress(ready_);
}

void Comm::take_events() {
  if (cell_->events.load(std::memory_order_relaxed) == 0) return;
  const uint64_t events = cell_->events.exchange(0, std::memory_order_acquire);
  ready_ |= static_cast<uint32_t>(events & ReadyCell::kReadyMask);
  hung_up_ |= static_cast<uint32_t>(events >> ReadyCell::kHangUpShift);
}

bool Comm::my_turn_to_sweep() {
  if (direct_) return ++idle_tries_ % kTriesALook == 0;
  const uint32_t newest = poller_->generation();
  const bool told = seen_generation_ == newest;
  seen_generation_ = told ? newest + 1 : newest;
  return told;
}

// The state machine: a few rounds over the sockets that may do something, then the verdict.
bool Comm::progress(uint32_t sockets) {
  if ((ready_ & bit_of(kControlBit)) != 0) {
    read_control();
    if (failed()) return true;  // from then on the buffers are the caller's again
  }
  uint32_t open = sockets & data_bits_;
  bool moved = false;
  for (int round = 0; open != 0 && round < kRounds; ++round) {
    for (uint32_t rest = open; rest != 0; rest &= rest - 1) {
      const int socket = __builtin_ctz(rest);
      const Step outcome = step(socket);
      if (failed()) return true;
      moved |=
          outcome == Step::kMoved || outcome == Step::kMovedAll || outcome == Step::kMovedForNow;
      // A socket that has hung up announces nothing any more: it stays ready until its end is read.
      // So does one that was tried unannounced and has bytes here that wait for their receive.
      const bool quiet = outcome == Step::kMovedAll && (hung_up_ & bit_of(socket)) == 0;
      if (quiet || outcome == Step::kBlocked) {
        ready_ &= ~bit_of(socket);
      } else {
        ready_ |= bit_of(socket);
      }
      // An end would have been read: it was that of a connection which had this cell before.
      if (outcome == Step::kBlocked) hung_up_ &= ~bit_of(socket);
      if (outcome != Step::kMoved) open &= ~bit_of(socket);
    }
  }
  if (__builtin_expect(trap_ != nullptr, false) && moved)
    trap_->after_progress(ring_.completed.load(std::memory_order_relaxed));
  complete_in_order();
  if (has_pending()) judge_losses(moved);
  return moved;
}

void Comm::complete_in_order() {
  const uint64_t before = ring_.completed.load(std::memory_order_relaxed);
  const uint64_t posted = ring_.posted.load(std::memory_order_acquire);
  uint64_t completed = before;
  while (completed != posted && ring_.slot(completed).complete()) ++completed;
  if (completed != before) ring_.completed.store(completed, std::memory_order_release);
}

void Comm::read_control() {
  uint8_t bytes[16 * kNoticeBytes];
  ssize_t got = 0;
  do {
    got = ::recv(sockets_.control.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  } while (got > 0 && take_control(bytes, static_cast<size_t>(got)));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (errno == EAGAIN) ready_ &= ~bit_of(kControlBit);
    return;
  }
  ready_ &= ~bit_of(kControlBit);
  if (loses_peers() && got == 0 && kind() == ObjectKind::kRecvComm && !control_ended_)
    trap_->sender_closed();
  control_ended_ = losing_ = true;
  // A peer that says what it has no reason to say is not ours.
  if (got > 0) fail(kNetInternalError, "unexpected bytes on the control connection", 0);
}

void Comm::fail(int code, const char* what, int error_number) {
  if (failed()) return;
  complete_in_order();
  note_failure(code, what, error_number);
}

// Said before it is seen: whoever is told of an error finds its reason in the log.
void Comm::note_failure(int code, const char* what, int error_number) {
  if (failure_said_.exchange(true, std::memory_order_relaxed)) return;
  SOFTTCPX_WARN("%s connection with %s: %s%s%s; error %d from now on",
                kind() == ObjectKind::kSendComm ? "send" : "receive",
                address_text(sockets_.peer).c_str(), what, error_number != 0 ? ": " : "",
                error_number != 0 ? std::strerror(error_number) : "", code);
  failure_.store(code, std::memory_order_release);
}

}  // namespace softtcpx
