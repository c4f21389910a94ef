#include "softtcpx/recv_comm.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "softtcpx/device.h"
#include "softtcpx/log.h"

namespace softtcpx {
namespace {

// Once the peer or a socket is gone, how long data may still be on its way on the other sockets.
constexpr std::chrono::seconds kLastBytes{1};

// After a small message is there, how often its connection is tested until the caller has sent an
// answer: once more for the next receive, once while the answer is posted.
constexpr int kVisitsForAnAnswer = 2;

}  // namespace

RecvComm::RecvComm(Device& device, Sockets sockets)
    : Comm(ObjectKind::kRecvComm, device, std::move(sockets)),
      lanes_(new Lane[sockets_.data.size()]),
      bounce_(device.settings) {}

NetUnpackDevice* RecvComm::offer_device() {
  offered_ = true;
  return bounce_.device();
}

int RecvComm::receive(void* data, int64_t bytes, const Region* region, void** request) {
  if (region != nullptr && region->on_device) {
    if (!offered_) return kNetInvalidArgument;
    if (!bounce_.filled()) {  // the first one of the connection
      scatters_.reset(new Scatter[sockets_.data.size()]);
      bounce_.fill();
    }
  }
  return post(data, bytes, region, request);
}

int RecvComm::consumed(const Request& request) {
  const uint64_t oldest = ring_.consumed.load(std::memory_order_relaxed);
  if (oldest == ring_.seen || &ring_.slot(oldest) != &request) return kNetInternalError;
  if (request.on_device) bounce_.poison(oldest);
  ring_.consumed.store(oldest + 1, std::memory_order_release);
  return kNetSuccess;
}

int RecvComm::finish() {
  leave_owner();
  // A socket that is closed with bytes in it resets the connection.
  for (size_t i = 0; i < sockets_.data.size(); ++i) let_go(lanes_[i], sockets_.data[i].get());
  const uint64_t seen = ring_.seen, consumed = ring_.consumed.load(std::memory_order_relaxed);
  const uint32_t leaked =
      bounce_.leaked(consumed, seen, ring_.posted.load(std::memory_order_relaxed));
  if (leaked == 0 || failed()) return kNetSuccess;
  SOFTTCPX_WARN(
      "receive connection with %s: closed with %u bounce pages missing; %llu finished "
      "receives were not consumed",
      address_text(sockets_.peer).c_str(), leaked,
      static_cast<unsigned long long>(seen - consumed));
  return kNetInternalError;
}

void RecvComm::prepare(Request& request, uint64_t) {
  request.total = 0;
  request.left = 1;  // until a header says how much it is
}

// Data flows one way only here, so that every small message costs an acknowledgement of its own,
// and a fifth of the round trip of 8 bytes, unless the kernel is asked to hold them back. It
// forgets that after 40 ms without traffic: hence again and again.
void RecvComm::while_idle() {
  const int off = 0;
  for (const Fd& fd : sockets_.data)
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

// At most a few in a row: the sender has read all but those of the last 16 receives.
void RecvComm::exchange_credits() {
  if (credit_left_ == 0) {
    const uint64_t posted = ring_.posted.load(std::memory_order_acquire);
    if (credited_ == posted) return;
    credited_ = posted;
    credit_ = make_credit(posted);
    credit_left_ = sizeof credit_;
  }
  const uint8_t* rest = reinterpret_cast<const uint8_t*>(&credit_ + 1) - credit_left_;
  const ssize_t sent =
      ::send(sockets_.control.get(), rest, credit_left_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) credit_left_ -= static_cast<uint32_t>(sent);
}

void RecvComm::announce(Request& request, const ChunkHeader& header) {
  request.left = request.total = header.total;
  request.announced = true;
  bounce_.take_back(ring_.consumed.load(std::memory_order_acquire));
  bounce_.begin(header.sequence, header.total);
  if (header.total == 0) whole(request, header.sequence);
}

RecvComm::Staged RecvComm::begin_piece(Lane& lane) {
  ChunkHeader header;
  std::memcpy(&header, &lane.stage[lane.begin], sizeof header);
  ChunkVerdict verdict = ChunkVerdict::kMalformed;
  if (plausible_chunk(header) &&
      header.sequence >= ring_.completed.load(std::memory_order_relaxed)) {
    if (header.sequence >= ring_.posted.load(std::memory_order_acquire)) return Staged::kNotYet;
    Request& request = ring_.slot(header.sequence);
    verdict = judge_chunk(header,
                          {request.capacity, request.announced, request.total, request.scheduled});
    if (__builtin_expect(trap_ != nullptr, false) && verdict == ChunkVerdict::kTooLarge &&
        trap_->overflows())
      verdict = ChunkVerdict::kGood;
    if (verdict == ChunkVerdict::kGood) {
      if (!request.announced) announce(request, header);
      request.scheduled += header.length;
      lane.begin += sizeof header;
      if (header.length > 0) {
        lane.request = &request;
        lane.sequence = header.sequence;
        lane.left = header.length;
        lane.cursor = request.data + header.offset;
        lane.scatter = nullptr;
        if (request.on_device) {
          lane.scatter = &scatters_[&lane - &lanes_[0]];
          lane.scatter->begin(header.sequence, header.offset, header.length);
          if (!cut(lane)) return Staged::kRefused;
        }
      }
      return Staged::kUsedUp;
    }
  }
  fail(kNetInternalError, verdict_text(verdict), 0);
  return Staged::kRefused;
}

RecvComm::Staged RecvComm::use_stage(Lane& lane) {
  for (;;) {
    if (lane.request != nullptr) {
      const uint64_t take = std::min<uint64_t>(lane.room(), lane.staged());
      if (take == 0) return Staged::kUsedUp;
      copy_from_stage(lane, take);
      arrived(lane, take);
      if (lane.request != nullptr && !cut(lane)) return Staged::kRefused;
    } else {
      if (lane.staged() < sizeof(ChunkHeader)) return Staged::kUsedUp;
      const Staged outcome = begin_piece(lane);
      if (outcome != Staged::kUsedUp) return outcome;
    }
  }
}

bool RecvComm::cut(Lane& lane) {
  if (lane.scatter == nullptr || lane.scatter->cut(bounce_)) return true;
  fail(kNetInternalError, "a message of more than 2047 fragments into GPU memory", 0);
  return false;
}

void RecvComm::copy_from_stage(Lane& lane, uint64_t bytes) {
  const uint8_t* from = &lane.stage[lane.begin];
  lane.begin += static_cast<uint32_t>(bytes);
  if (lane.scatter == nullptr) {
    std::memcpy(lane.cursor, from, bytes);
    return;
  }
  for (const iovec* part = lane.scatter->parts(); bytes > 0; ++part) {
    const uint64_t take = std::min<uint64_t>(bytes, part->iov_len);
    std::memcpy(part->iov_base, from, take);
    from += take;
    bytes -= take;
  }
}

void RecvComm::arrived(Lane& lane, uint64_t bytes) {
  lane.left -= bytes;
  lane.request->left -= bytes;
  if (lane.scatter != nullptr) {
    lane.scatter->arrived(bounce_, bytes);
  } else {
    lane.cursor += bytes;
  }
  if (lane.left > 0) return;
  Request& request = *std::exchange(lane.request, nullptr);
  lane.scatter = nullptr;
  if (request.left == 0) whole(request, lane.sequence);
}

void RecvComm::whole(Request& request, uint64_t sequence) {
  if (__builtin_expect(trap_ != nullptr, false)) spring_traps(request, sequence);
  if (request.on_device) bounce_.publish(sequence);
}

void RecvComm::spring_traps(Request& request, uint64_t sequence) {
  const TrapState::Damage damage = trap_->damage(sequence);
  NetUnpackFragment* fragments = bounce_.descriptors(sequence);
  if (damage.corrupt && request.total > 0)
    *(request.on_device ? bounce_.page_bytes(fragments[0].src_off) : request.data) ^= 0x01;
  if (!request.on_device) return;
  if (damage.reorder) std::reverse(fragments, fragments + bounce_.listed(sequence));
  if (damage.duplicate) bounce_.duplicate_last(sequence);
  if (trap_->leaks(sequence)) bounce_.lose_page(sequence);
}

// Into what is left of the piece, and behind it into the stage.
ssize_t RecvComm::read(Lane& lane, int fd, uint64_t* wanted) {
  const iovec stage = {&lane.stage[lane.end], lane.stage.size() - lane.end};
  if (lane.scatter != nullptr) {
    int parts = lane.scatter->count();
    *wanted = lane.scatter->room();
    if (lane.scatter->all_cut()) {
      *lane.scatter->behind() = stage;
      *wanted += stage.iov_len;
      ++parts;
    }
    return ::readv(fd, lane.scatter->parts(), parts);
  }
  *wanted = lane.left + stage.iov_len;
  if (lane.left == 0) return ::recv(fd, stage.iov_base, stage.iov_len, MSG_DONTWAIT);
  const iovec parts[2] = {{lane.cursor, lane.left}, stage};
  return ::readv(fd, parts, 2);
}

// The kernel acknowledges bytes when they are taken out of the socket, and where data flows one way
// only that is a packet of its own: a third of the round trip of 8 bytes, before the caller knows
// that they are there. So who has waited for a message looks at it first, and takes it out when
// there was time for an answer.
ssize_t RecvComm::peek(Lane& lane, int fd) {
  const ssize_t got =
      ::recv(fd, &lane.stage[lane.end], lane.stage.size() - lane.end, MSG_DONTWAIT | MSG_PEEK);
  if (got > 0) lane.peeked = static_cast<uint32_t>(got);
  return got;
}

bool RecvComm::let_go(Lane& lane, int fd) {
  while (lane.peeked > 0) {
    // MSG_TRUNC spares the copy on TCP; other sockets write what is there already.
    const ssize_t gone =
        ::recv(fd, &lane.stage[lane.end - lane.peeked], lane.peeked, MSG_DONTWAIT | MSG_TRUNC);
    if (gone < 0 && errno == EINTR) continue;
    if (gone <= 0) return false;
    lane.peeked -= static_cast<uint32_t>(gone);
  }
  return true;
}

Comm::Step RecvComm::step(int socket) {
  Lane& lane = lanes_[socket];
  if (lane.staged() > 0) {
    const Staged before = use_stage(lane);
    if (before != Staged::kUsedUp) return Step::kNothingToDo;
  }
  const int fd = sockets_.data[socket].get();
  if (lane.visits_left > 0) {
    --lane.visits_left;
    return Step::kNothingToDo;  // the socket stays ready: what came meanwhile was announced
  }
  if (!let_go(lane, fd)) return lost(socket, errno);

  // Only the beginning of a header can be left in the stage.
  if (lane.staged() > 0) std::memmove(&lane.stage[0], &lane.stage[lane.begin], lane.staged());
  lane.end = lane.staged();
  lane.begin = 0;

  uint64_t wanted = lane.stage.size() - lane.end;
  const bool peeks = lane.waited && lane.request == nullptr;
  const ssize_t got = peeks ? peek(lane, fd) : read(lane, fd, &wanted);
  lane.waited = got < 0 && errno == EAGAIN;
  if (lane.waited) return Step::kBlocked;
  if (got < 0 && errno == EINTR) return Step::kNothingToDo;
  if (got <= 0) return lost(socket, got < 0 ? errno : 0);

  const uint64_t direct = std::min<uint64_t>(static_cast<uint64_t>(got), lane.room());
  if (direct > 0) arrived(lane, direct);
  if (lane.request != nullptr && !cut(lane)) return Step::kBlocked;
  lane.end += static_cast<uint32_t>(static_cast<uint64_t>(got) - direct);
  const Staged after = use_stage(lane);
  if (after == Staged::kRefused) return Step::kBlocked;
  if (after == Staged::kNotYet) return Step::kMoved;  // stays ready: the stage is not empty
  const bool all = static_cast<uint64_t>(got) < wanted;
  if (peeks && all && lane.request == nullptr) lane.visits_left = kVisitsForAnAnswer;
  return all ? Step::kMovedAll : Step::kMoved;
}

Comm::Step RecvComm::lost(int socket, int error_number) {
  const Lane& lane = lanes_[socket];
  lose_socket(socket);
  if (lane.request != nullptr || lane.staged() > 0)
    fail(kNetSystemError, "a data socket ended within a message", error_number);
  return Step::kBlocked;
}

// A peer that closes or dies does so on every socket, in any order, and what it had sent before
// still arrives. So a loss ends the connection only when nothing more can come.
void RecvComm::judge_losses() {
  if (!losing_) return;
  if (data_bits_ == 0) {
    fail(kNetSystemError, "the peer closed while receives were pending", 0);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (losing_since_ == std::chrono::steady_clock::time_point{}) losing_since_ = now;
  if (now - losing_since_ > kLastBytes)
    fail(kNetSystemError, "a socket of the peer is lost and nothing more arrives", 0);
}

}  // namespace softtcpx
