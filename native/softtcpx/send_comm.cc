#include "softtcpx/send_comm.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "softtcpx/device.h"

namespace softtcpx {
namespace {

// Small pieces share a system call up to so many bytes.
constexpr uint64_t kSharedBytes = 64 * 1024;

}  // namespace

SendComm::SendComm(Device& device, Sockets sockets)
    : Comm(ObjectKind::kSendComm, device, std::move(sockets)),
      chunk_bytes_(static_cast<uint64_t>(device.settings.chunk_bytes)),
      loads_(new Load[sockets_.data.size()]),
      granted_(recv_sync_ ? 0 : ~uint64_t{0}) {}

void SendComm::prepare(Request& request, uint64_t bytes) {
  request.total = bytes;
  // An empty message has a header too, hence one piece.
  request.left = std::max<uint64_t>(1, (bytes + chunk_bytes_ - 1) / chunk_bytes_);
}

void SendComm::Load::add(const ChunkHeader& header, const uint8_t* data, Request* request) {
  headers[pieces] = header;
  iov[parts] = iovec{&headers[pieces], sizeof header};
  finishes[parts] = nullptr;
  ++pieces;
  ++parts;
  if (header.length > 0) {
    iov[parts] = iovec{const_cast<uint8_t*>(data), header.length};
    finishes[parts] = nullptr;
    ++parts;
  }
  finishes[parts - 1] = request;
}

void SendComm::Load::sent(size_t bytes) {
  while (bytes > 0) {
    iovec& part = iov[first];
    const size_t taken = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<uint8_t*>(part.iov_base) + taken;
    part.iov_len -= taken;
    bytes -= taken;
    if (part.iov_len > 0) return;
    if (finishes[first] != nullptr) --finishes[first]->left;
    ++first;
  }
}

void SendComm::fill(Load& load) {
  load.first = load.parts = load.pieces = 0;
  const uint64_t end = std::min(granted_, ring_.posted.load(std::memory_order_acquire));
  uint64_t bytes = 0;
  while (next_ < end && load.pieces < Load::kPieces) {
    Request& request = ring_.slot(next_);
    const uint64_t length = std::min(chunk_bytes_, request.total - request.scheduled);
    if (load.pieces > 0 && bytes + length > kSharedBytes) return;
    load.add(
        make_chunk_header(next_, request.total, request.scheduled, static_cast<uint32_t>(length)),
        request.data + request.scheduled, &request);
    bytes += length;
    request.scheduled += length;
    if (request.scheduled == request.total) ++next_;
  }
}

Comm::Step SendComm::step(int socket) {
  Load& load = loads_[socket];
  if (load.empty()) fill(load);
  if (load.empty()) return Step::kNothingToDo;
  msghdr message{};
  message.msg_iov = &load.iov[load.first];
  message.msg_iovlen = static_cast<size_t>(load.parts - load.first);
  const ssize_t sent =
      ::sendmsg(sockets_.data[socket].get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno == EAGAIN) return Step::kBlocked;
    if (errno == EINTR || errno == ENOBUFS) return Step::kNothingToDo;  // nothing announces its end
    fail(kNetSystemError, "a data socket broke", errno);
    return Step::kBlocked;
  }
  load.sent(static_cast<size_t>(sent));
  return load.empty() ? Step::kMoved : Step::kMovedAll;
}

// Starved of credit, it does not wait for epoll to tell that there is some.
void SendComm::exchange_credits() {
  if (next_ == granted_ && has_pending()) look_at_control();
}

bool SendComm::take_control(const uint8_t* bytes, size_t count) {
  if (!recv_sync_) return false;
  for (size_t i = 0; i < count; ++i) {
    credit_[have_++] = bytes[i];
    if (have_ < sizeof credit_) continue;
    have_ = 0;
    const uint64_t sent = ring_.completed.load(std::memory_order_relaxed);
    if (!judge_credit(credit_, granted_, sent, &granted_)) return false;
  }
  return true;
}

void SendComm::judge_losses(bool) {
  if (control_ended_) fail(kNetSystemError, "the peer closed while sends were pending", 0);
}

}  // namespace softtcpx
