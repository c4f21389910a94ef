#include "softtcpx/send_comm.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "softtcpx/device.h"

namespace softtcpx {
namespace {

// Small pieces share a system call up to so many bytes.
constexpr uint64_t kSharedBytes = 64 * 1024;
// Looks at a copy that does not land, before the driver is asked whether it has failed.
constexpr uint32_t kLooksAQuestion = 1 << 14;

}  // namespace

SendComm::SendComm(Device& device, Sockets sockets)
    : Comm(ObjectKind::kSendComm, device, std::move(sockets)),
      chunk_bytes_(static_cast<uint64_t>(device.settings.chunk_bytes)),
      copy_bytes_(std::min(chunk_bytes_, static_cast<uint64_t>(device.settings.copy_bytes))),
      first_copy_bytes_(
          std::min(copy_bytes_, static_cast<uint64_t>(device.settings.first_copy_bytes))),
      copies_at_once_(device.settings.copies_at_once),
      loads_(new Load[sockets_.data.size()]),
      granted_(recv_sync_ ? 0 : ~uint64_t{0}) {}

int SendComm::send(void* data, int64_t bytes, const Region* region, void** request) {
  if (region != nullptr && region->memory == Memory::kGpu &&
      region->gpu.ordinal != copies()->gpu().ordinal)
    return kNetInvalidArgument;
  return post(data, bytes, region, request);
}

bool SendComm::serve_gpu_memory(const Gpu& gpu) {
  if (copy_ring_ != nullptr) return true;
  copy_ring_ = std::make_unique<CopyRing>(gpu, copy_bytes_, device_.settings.copies,
                                          device_.settings.kernel_copy_bytes);
  copies_.store(copy_ring_.get(), std::memory_order_release);
  return true;
}

// In bytes, for how many pieces those become is seen when they are cut. An empty message has a
// header to be sent.
void SendComm::prepare(Request& request, uint64_t bytes) {
  request.total = bytes;
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
    if (end.copied != nullptr) ring->sent(*end.copied);
    ++first;
  }
}

// After a pause the sockets wait for a whole copy: a short one lands sooner, and twice the length
// each time soon is as quick as the longest.
uint64_t SendComm::next_copy(const CopyRing& copies) {
  copy_length_ = copies.starved() ? first_copy_bytes_ : std::min(2 * copy_length_, copy_bytes_);
  return copy_length_;
}

// Keeps the copy engine busy while the sockets send what has landed.
void SendComm::copy_ahead(CopyRing& copies) {
  const uint64_t posted = ring_.posted.load(std::memory_order_acquire);
  copy_next_ = std::max(copy_next_, next_);  // what has nothing to copy may be gone by now
  int64_t may_begin = copies_at_once_;
  std::optional<CurrentContext> current;  // once there is something to copy
  for (; copy_next_ < posted; ++copy_next_) {
    Request& request = ring_.slot(copy_next_);
    const uint64_t bytes = request.memory == Memory::kGpu ? request.total : 0;
    while (request.copied < bytes && may_begin > 0 && copies.has_room() && !copies.failed()) {
      if (!current) current.emplace(copies.gpu(), after_calls());
      const uint64_t length = std::min(next_copy(copies), bytes - request.copied);
      copies.begin(request.data + request.copied, length);
      request.copied += length;
      --may_begin;
    }
    if (request.copied < bytes) break;
  }
  copies.tell();
  judge_copies(copies);
}

void SendComm::judge_copies(const CopyRing& copies) {
  if (copies.failed()) fail(kNetUnhandledCudaError, copies.failure().c_str(), 0);
}

// The oldest piece in the ring, which belongs to the oldest message; null while it is not there.
CopyRing::Piece* SendComm::landed_piece(CopyRing& copies) {
  CopyRing::Piece* piece = copies.next();
  if (piece == nullptr || copies.landed(*piece)) return piece;
  if (++looks_ % kLooksAQuestion == 0) {
    const CurrentContext current(copies.gpu(), after_calls());
    copies.ask();
    judge_copies(copies);
  }
  return nullptr;
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
      copied = landed_piece(*copies());
      if (copied == nullptr) return;
      data = copied->data;
      length = copied->length;
    }
    if (load.pieces > 0 && bytes + length > kSharedBytes) return;
    if (copied != nullptr) copies()->take();
    load.add(
        make_chunk_header(next_, request.total, request.scheduled, static_cast<uint32_t>(length)),
        data, &request, copied);
    bytes += length;
    request.scheduled += length;
    if (request.scheduled == request.total) ++next_;
  }
}

Comm::Step SendComm::step(int socket) {
  Load& load = loads_[socket];
  if (load.empty()) {
    if (CopyRing* const copies = this->copies()) copy_ahead(*copies);
    if (!failed()) fill(load);
  }
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
  load.sent(static_cast<size_t>(sent), copies());
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
