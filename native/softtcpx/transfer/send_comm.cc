#include "softtcpx/transfer/send_comm.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "softtcpx/environment/log.h"
#include "softtcpx/environment/trace.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {
namespace {

// Small pieces share a system call up to so many bytes.
constexpr uint64_t kSharedBytes = 64 * 1024;
// Looks at a copy that does not land, before the driver is asked whether it has failed.
constexpr uint32_t kLooksAQuestion = 1 << 14;
// A smaller piece is copied sooner than it is lent and returned.
constexpr uint64_t kLeastLent = 64 * 1024;
// How long a connection that is closed waits for a peer that takes nothing.
constexpr std::chrono::seconds kLastBytes{1};

}  // namespace

SendComm::SendComm(Device& device, Sockets sockets)
    : Comm(ObjectKind::kSendComm, device, std::move(sockets)),
      chunk_bytes_(static_cast<uint64_t>(device.settings.chunk_bytes)),
      copy_bytes_(std::min(chunk_bytes_, static_cast<uint64_t>(device.settings.copy_bytes))),
      loads_(new Load[sockets_.data.size()]),
      granted_(recv_sync_ ? 0 : ~uint64_t{0}) {}

int SendComm::send(void* data, int64_t bytes, const Region* region, void** request, int tag) {
  tag_ = tag;
  if (region != nullptr && region->memory == Memory::kGpu &&
      region->gpu.ordinal != copies()->gpu().ordinal)
    return kNetInvalidArgument;
  return post(data, bytes, region, request);
}

bool SendComm::serve_gpu_memory(const Gpu& gpu) {
  if (copy_ring_ != nullptr) return true;
  copy_ring_ = std::make_unique<CopyRing>(device_.copy_queues.of(gpu, device_.settings.stay_us),
                                          copy_bytes_, device_.settings.copies);
  if (device_.settings.zero_copy != 0 && has_worker()) open_lenders();
  copies_.store(copy_ring_.get(), std::memory_order_release);
  return true;
}

// Of a worker only, which has SIGPIPE blocked.
void SendComm::open_lenders() {
  for (size_t i = 0; i < sockets_.data.size(); ++i) {
    if (loads_[i].lender.open(*copy_ring_)) continue;
    SOFTTCPX_INFO(
        "sends out of GPU memory are copied from data socket %zu on: no pipe for pages: %s", i,
        std::strerror(errno));
    return;
  }
}

// In bytes, for how many pieces those become is seen when they are cut. An empty message has a
// header to be sent.
void SendComm::prepare(Request& request, uint64_t bytes) {
  request.total = bytes;
  request.tag = tag_;
  request.left = std::max<uint64_t>(1, bytes);
}

void SendComm::Load::add(const ChunkHeader& header, const uint8_t* data, Request* request,
                         CopyRing::Piece* copied) {
  headers[pieces] = header;
  iov[parts] = iovec{&headers[pieces], sizeof header};
  ends[parts] = {};
  ++pieces;
  ++parts;
  if (header.length > 0) {
    iov[parts] = iovec{const_cast<uint8_t*>(data), header.length};
    ++parts;
  }
  ends[parts - 1] = {request, std::max<uint64_t>(1, header.length), copied};
}

void SendComm::Load::lend(const ChunkHeader& header, Request& request, CopyRing::Piece& copied) {
  headers[pieces] = header;
  iov[parts] = iovec{&headers[pieces], sizeof header};
  ends[parts] = {};
  ++pieces;
  ++parts;
  lender.begin(request, copied);
}

void SendComm::Load::sent(size_t bytes, CopyRing* ring) {
  while (bytes > 0) {
    iovec& part = iov[first];
    const size_t taken = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<uint8_t*>(part.iov_base) + taken;
    part.iov_len -= taken;
    bytes -= taken;
    if (part.iov_len > 0) return;
    const End& end = ends[first];
    if (end.request != nullptr) end.request->left -= end.bytes;
    if (end.copied != nullptr) ring->release(*end.copied);
    ++first;
  }
}

// Keeps the copy engine busy while the sockets send what has landed. Of the caller alone: were it
// the workers', they would wait for each other inside the driver.
void SendComm::copy_ahead(CopyRing& copies) {
  const uint64_t posted = ring_.posted.load(std::memory_order_relaxed);
  std::optional<CurrentContext> current;  // once there is something to copy
  for (; copy_next_ < posted; ++copy_next_) {
    Request& request = ring_.slot(copy_next_);
    const uint64_t bytes = request.memory == Memory::kGpu ? request.capacity : 0;
    while (request.copied < bytes && copies.has_room() && !copies.failed()) {
      if (!current) current.emplace(copies.gpu());
      const uint64_t length = std::min(copy_bytes_, bytes - request.copied);
      request.number = copies.begin(request.data + request.copied, length);
      trace(TraceStep::kCopyBegun, *this, copy_next_, request.copied, length);
      request.copied += length;
    }
    if (request.copied < bytes) break;
  }
  if (current) {
    wake_owner();
  } else if (copies.is_due()) {
    const CurrentContext later(copies.gpu());
    copies.hand_over();
  }
}

// Which another connection's caller may have found out.
void SendComm::note_failed_copy() {
  CopyRing* const copies = this->copies();
  if (copies != nullptr && copies->failed())
    note_failure(kNetUnhandledCudaError, copies->failure().c_str(), 0);
}

// Whoever waits for a credit, or has nobody who sends what lies in the ring, is not done early.
bool SendComm::help(const Request& request) {
  CopyRing* const copies = this->copies();
  if (copies == nullptr) return false;
  copy_ahead(*copies);
  const bool landed = request.memory == Memory::kGpu && request.copied == request.capacity &&
                      copies->landed(request.number);
  if (!landed && ++looks_ % kLooksAQuestion == 0) {
    const CurrentContext current(copies->gpu());
    copies->ask();
  }
  note_failed_copy();
  return landed && !failed() && has_worker() && !recv_sync_;
}

// The oldest piece in the ring, which belongs to the oldest message; null while it is not there.
CopyRing::Piece* SendComm::landed_piece() {
  CopyRing::Piece* const piece = copies()->next();
  return piece != nullptr && copies()->landed(*piece) ? piece : nullptr;
}

// A copy is on its way, or has landed, and a socket is free for it.
bool SendComm::goes_on_unannounced() const {
  CopyRing* const copies = this->copies();
  if (copies == nullptr || copies->next() == nullptr || next_ >= granted_) return false;
  return std::any_of(&loads_[0], &loads_[0] + sockets_.data.size(),
                     [](const Load& load) { return load.empty(); });
}

void SendComm::fill(Load& load) {
  load.first = load.parts = load.pieces = 0;
  const uint64_t end = std::min(granted_, ring_.posted.load(std::memory_order_acquire));
  uint64_t bytes = 0;
  while (next_ < end && load.pieces < Load::kPieces) {
    Request& request = ring_.slot(next_);
    const uint8_t* data = request.data + request.scheduled;
    uint64_t length = std::min(chunk_bytes_, request.total - request.scheduled);
    CopyRing::Piece* copied = nullptr;
    if (request.memory == Memory::kGpu) {
      copied = landed_piece();
      if (copied == nullptr) return;
      data = copied->data;
      length = copied->length;
    }
    if (load.pieces > 0 && bytes + length > kSharedBytes) return;
    if (copied != nullptr) {
      copies()->take();
      trace(TraceStep::kCopyLanded, *this, next_, request.scheduled, length, &load - &loads_[0]);
    }
    trace(TraceStep::kSending, *this, next_, request.scheduled, length, &load - &loads_[0]);
    const bool lent = copied != nullptr && length >= kLeastLent && load.lender.is_open();
    const ChunkHeader header =
        make_chunk_header(next_, request.total, request.scheduled, static_cast<uint32_t>(length),
                          lent ? kLent : 0, request.tag);
    if (lent) {
      load.lend(header, request, *copied);
      ++lent_;
      talks_ = true;
    } else {
      load.add(header, data, &request, copied);
    }
    bytes += length;
    request.scheduled += length;
    if (request.scheduled == request.total) ++next_;
    if (lent) return;
  }
}

ssize_t SendComm::send_parts(Load& load, int fd) {
  msghdr message{};
  message.msg_iov = &load.iov[load.first];
  message.msg_iovlen = static_cast<size_t>(load.parts - load.first);
  const int more = load.lender.empty() ? 0 : MSG_MORE;
  const ssize_t sent = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL | more);
  if (sent > 0) load.sent(static_cast<size_t>(sent), copies());
  return sent;
}

Comm::Step SendComm::step(int socket) {
  Load& load = loads_[socket];
  if (load.empty()) fill(load);
  if (load.empty()) return Step::kNothingToDo;
  const int fd = sockets_.data[socket].get();
  ssize_t sent = load.first < load.parts ? send_parts(load, fd) : 0;
  bool full = true;  // where something is left: then its room is announced
  if (sent >= 0 && load.first == load.parts && !load.lender.empty()) {
    const ssize_t lent = load.lender.send(fd);
    full = errno == EAGAIN;
    sent = lent > 0 || sent == 0 ? sent + lent : sent;
  }
  if (sent < 0) {
    if (errno == EAGAIN) return Step::kBlocked;
    if (errno == EINTR || errno == ENOBUFS) return Step::kNothingToDo;  // nothing announces its end
    if (loses_peers()) {
      lose_socket_quietly(socket, errno);
      return Step::kBlocked;
    }
    fail(kNetSystemError, "a data socket broke", errno);
    return Step::kBlocked;
  }
  // Of several small pieces in one call, it is told of the first.
  trace(TraceStep::kSent, *this, load.headers[0].sequence, load.headers[0].offset,
        static_cast<uint64_t>(sent), socket);
  sent_.store(sent_.load(std::memory_order_relaxed) + static_cast<uint64_t>(sent),
              std::memory_order_relaxed);
  return load.empty() || !full ? Step::kMoved : Step::kMovedAll;
}

// Starved of credit, or of room for copies, it does not wait for epoll to tell that there is some.
void SendComm::exchange_notices() {
  const bool lacks_credit = next_ == granted_ && has_pending();
  if (lacks_credit || (lent_ > 0 && copies()->is_tight())) look_at_control();
}

bool SendComm::take_control(const uint8_t* bytes, size_t count) {
  if (!talks_) return false;
  for (size_t i = 0; i < count; ++i) {
    notice_[have_++] = bytes[i];
    if (have_ < sizeof notice_) continue;
    have_ = 0;
    if (!take_notice()) return false;
  }
  return true;
}

bool SendComm::take_notice() {
  CopyRing* const copies = this->copies();
  uint32_t socket = 0;
  if (copies != nullptr && names_return(notice_, sockets_.data.size(), &socket)) {
    const uint64_t pieces = loads_[socket].lender.take_back(notice_, *copies);
    lent_ -= pieces;
    return pieces > 0;
  }
  const uint64_t sent = ring_.completed.load(std::memory_order_relaxed);
  return recv_sync_ && judge_credit(notice_, granted_, sent, &granted_);
}

void SendComm::judge_losses(bool) {
  if (control_ended_) fail(kNetSystemError, "the peer closed while sends were pending", 0);
}

// Bytes that lie in the ring for a peer that takes none any more are lost, as those are that lie in
// the operating system's hands.
int SendComm::finish() {
  using Clock = std::chrono::steady_clock;
  const auto left = [&] {
    const uint64_t completed = ring_.completed.load(std::memory_order_acquire);
    return completed < ring_.seen ? ring_.seen - completed : 0;
  };
  uint64_t before = 0;
  for (auto moved = Clock::now(); left() > 0 && !failed(); ::sched_yield()) {
    note_failed_copy();
    const uint64_t sent = sent_.load(std::memory_order_relaxed);
    if (std::exchange(before, sent) != sent) moved = Clock::now();
    if (Clock::now() - moved < kLastBytes) continue;
    SOFTTCPX_WARN(
        "send connection with %s: closed, and the peer takes nothing: %llu messages are "
        "lost of which test has said that they are done",
        address_text(sockets_.peer).c_str(), static_cast<unsigned long long>(left()));
    return kNetSystemError;
  }
  return left() > 0 ? failure() : kNetSuccess;
}

}  // namespace softtcpx
