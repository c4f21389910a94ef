#include "softtcpx/recv_comm.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softtcpx {
namespace {

// Once the peer or a socket is gone, how long data may still be on its way on the other sockets.
constexpr std::chrono::seconds kLastBytes{1};

}  // namespace

RecvComm::RecvComm(Device& device, Sockets sockets)
    : Comm(ObjectKind::kRecvComm, device, std::move(sockets)),
      lanes_(new Lane[sockets_.data.size()]) {}

int RecvComm::consumed(const Request& request) {
  if (ring_.consumed == ring_.seen || &ring_.slot(ring_.consumed) != &request)
    return kNetInternalError;
  ++ring_.consumed;
  return kNetSuccess;
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
    if (verdict == ChunkVerdict::kGood) {
      if (!request.announced) request.left = request.total = header.total;
      request.announced = true;
      request.scheduled += header.length;
      lane.begin += sizeof header;
      if (header.length > 0) {
        lane.request = &request;
        lane.cursor = request.data + header.offset;
        lane.left = header.length;
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
      const uint64_t take = std::min<uint64_t>(lane.left, lane.staged());
      if (take == 0) return Staged::kUsedUp;
      std::memcpy(lane.cursor, &lane.stage[lane.begin], take);
      lane.begin += static_cast<uint32_t>(take);
      arrived(lane, take);
    } else {
      if (lane.staged() < sizeof(ChunkHeader)) return Staged::kUsedUp;
      const Staged outcome = begin_piece(lane);
      if (outcome != Staged::kUsedUp) return outcome;
    }
  }
}

void RecvComm::arrived(Lane& lane, uint64_t bytes) {
  lane.cursor += bytes;
  lane.left -= bytes;
  lane.request->left -= bytes;
  if (lane.left == 0) lane.request = nullptr;
}

Comm::Step RecvComm::step(int socket) {
  Lane& lane = lanes_[socket];
  if (lane.staged() > 0) {
    const Staged before = use_stage(lane);
    if (before != Staged::kUsedUp) return Step::kNothingToDo;
  }
  // Only the beginning of a header can be left in the stage.
  if (lane.staged() > 0) std::memmove(&lane.stage[0], &lane.stage[lane.begin], lane.staged());
  lane.end = lane.staged();
  lane.begin = 0;

  const int fd = sockets_.data[socket].get();
  const iovec parts[2] = {{lane.cursor, lane.left},
                          {&lane.stage[lane.end], lane.stage.size() - lane.end}};
  const uint64_t wanted = lane.left + parts[1].iov_len;
  const ssize_t got = lane.left > 0 ? ::readv(fd, parts, 2)
                                    : ::recv(fd, parts[1].iov_base, parts[1].iov_len, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return Step::kBlocked;
  if (got < 0 && errno == EINTR) return Step::kNothingToDo;
  if (got <= 0) return lost(socket, got < 0 ? errno : 0);

  const uint64_t direct = std::min<uint64_t>(static_cast<uint64_t>(got), lane.left);
  if (direct > 0) arrived(lane, direct);
  lane.end += static_cast<uint32_t>(static_cast<uint64_t>(got) - direct);
  const Staged after = use_stage(lane);
  if (after == Staged::kRefused) return Step::kBlocked;
  if (after == Staged::kNotYet) return Step::kMoved;  // stays ready: the stage is not empty
  return static_cast<uint64_t>(got) < wanted ? Step::kMovedAll : Step::kMoved;
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
