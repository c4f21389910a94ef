#include "softtcpx/transfer/recv_comm.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "softtcpx/environment/log.h"
#include "softtcpx/environment/trace.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {
namespace {

// Once the peer or a socket is gone, how long the other sockets may be quiet and still have data on
// their way.
constexpr std::chrono::seconds kLastBytes{1};

// After a small message is there, how often its connection is tested until the caller has sent an
// answer: once more for the next receive, once while the answer is posted.
constexpr int kVisitsForAnAnswer = 2;

// The window is about half the buffer, and a sender cuts segments of up to half the window. With
// less room than a segment it waits for a timer, 200 ms and more each time, as nothing tells it of
// a little more: bytes are held only where all that can be held leaves room for one.
bool leaves_room_for_a_segment(int fd, uint32_t held) {
  int buffer = 0;
  socklen_t length = sizeof buffer;
  return ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, &length) == 0 &&
         static_cast<uint64_t>(buffer) >= 4 * uint64_t{held};
}

}  // namespace

RecvComm::RecvComm(Device& device, Sockets sockets)
    : Comm(ObjectKind::kRecvComm, device, std::move(sockets)),
      readers_(new SocketReader[sockets_.data.size()]),
      in_place_(device.settings.direct
                    ? std::make_unique<InPlace>(*this, device.settings, sockets_.data.size())
                    : nullptr),
      bounce_(device.settings) {
  for (size_t i = 0; i < sockets_.data.size(); ++i)
    readers_[i].roomy =
        leaves_room_for_a_segment(sockets_.data[i].get(), SocketReader::kStageBytes);
}

void RecvComm::open_bounce() {
  if (in_place_ != nullptr) return;
  bounce_.open(gpu_);
  if (gpu_)
    SOFTTCPX_INFO("a receiving connection to GPU %d: %u bounce pages, %zu bytes page-locked",
                  gpu_.ordinal, bounce_.pages(), bounce_.bytes());
}

bool RecvComm::serve_gpu_memory(const Gpu& gpu) {
  return in_place_ != nullptr ? in_place_->serve(Memory::kGpu, gpu) : bounce_.pinned();
}

NetUnpackDevice* RecvComm::offer_device() {
  offered_ = true;
  return bounce_.device();
}

int RecvComm::receive(void* data, int64_t bytes, const Region* region, void** request) {
  if (region != nullptr && region->memory != Memory::kHost) {
    if (!offered_) return kNetInvalidArgument;
    // No GPU of ours: no page-locked pages, and no ordinal.
    if (region->memory == Memory::kGpu && region->gpu.ordinal != gpu_.ordinal)
      return kNetInvalidArgument;
    if (bytes > 0 && !bounce_.holds(static_cast<uint64_t>(bytes))) {
      SOFTTCPX_WARN(
          "a receive of %lld bytes needs more than the %u bounce pages of its connection; "
          "SOFTTCPX_BOUNCE_PAGES says how many there are",
          static_cast<long long>(bytes), bounce_.pages());
      return kNetInvalidArgument;
    }
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
  if (request.scattered()) bounce_.poison(oldest);
  ring_.consumed.store(oldest + 1, std::memory_order_seq_cst);  // before the look at `starved_`
  if (starved_.load(std::memory_order_seq_cst)) wake_owner();
  return kNetSuccess;
}

int RecvComm::finish() {
  leave_owner();
  // A socket that is closed with bytes in it resets the connection.
  for (size_t i = 0; i < sockets_.data.size(); ++i) let_go(readers_[i], sockets_.data[i].get());
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

int RecvComm::receive_together(const Place* places, int n, void** request) {
  *request = nullptr;
  const uint64_t first = ring_.posted.load(std::memory_order_relaxed);
  if (first + static_cast<uint64_t>(n) - oldest_unfreed() > RequestRing::kSlots)
    return kNetInternalError;
  Ticket* const ticket = in_place_->take_ticket();
  if (ticket == nullptr) return kNetSuccess;  // "busy"
  ticket->flushes = false;
  ticket->n = n;
  ticket->first = first_ = first;
  together_ = static_cast<uint32_t>(n);
  for (int i = 0; i < n;) {
    tag_ = places[i].tag;
    void* posted = nullptr;
    const int code = post(places[i].data, places[i].bytes, places[i].region, &posted);
    if (code != kNetSuccess || (posted == nullptr && i == 0)) {
      if (i > 0) fail(code, "one of several receives was refused", 0);
      ticket->taken = false;
      return code;
    }
    i += posted != nullptr;
  }
  *request = static_cast<Object*>(ticket);
  return kNetSuccess;
}

int RecvComm::test_ticket(Ticket& ticket, int* done, int* sizes) {
  *done = 0;
  if (!ticket.taken) return kNetInternalError;
  if (ticket.flushes) {
    if (failed()) return failure();
    if (++ticket.tests <= device_.settings.flush_polls) return kNetSuccess;
  }
  for (; !ticket.flushes && ticket.done < ticket.n; ++ticket.done) {
    int one = 0;
    const Request& request = ring_.slot(ticket.first + ticket.done);
    const int code = test(request, &one, sizes != nullptr ? &sizes[ticket.done] : nullptr);
    if (code != kNetSuccess || one == 0) return code;
  }
  for (int i = 0; i < ticket.n; ++i) {
    if (ticket.flushes) {
      if (!in_place_->show(ticket.flushed[i])) return kNetUnhandledCudaError;
      continue;
    }
    const Request& request = ring_.slot(ticket.first + i);
    // A caller that asks again is told again.
    if (sizes != nullptr) sizes[i] = static_cast<int>(request.total);
    in_place_->done(request);
    consumed(request);
  }
  ticket.taken = false;
  *done = 1;
  return kNetSuccess;
}

int RecvComm::flush(int n, void** data, const int* sizes, void** request) {
  Ticket* const ticket = in_place_->take_ticket();
  if (ticket == nullptr) return kNetInternalError;
  ticket->flushes = true;
  ticket->n = 0;
  for (int i = 0; i < n; ++i) {
    if (sizes[i] > 0) ticket->flushed[ticket->n++] = static_cast<uint8_t*>(data[i]);
  }
  *request = static_cast<Object*>(ticket);
  if (device_.settings.flush_polls > 0) return kNetSuccess;
  int done = 0;
  const int code = test_ticket(*ticket, &done, nullptr);
  ticket->taken = false;
  *request = nullptr;
  return code;
}

void RecvComm::prepare(Request& request, uint64_t) {
  request.placed = in_place_ != nullptr && request.memory != Memory::kHost;
  if (in_place_ != nullptr) {
    request.number = static_cast<uint32_t>(ring_.posted.load(std::memory_order_relaxed));
    request.tag = tag_;
    request.together = together_;
    request.first = first_;
  }
  request.total = 0;
  request.left = 1;  // until a header says how much it is
}

// Data flows one way only here, so that every small message costs an acknowledgement of its own,
// and a fifth of the round trip of 8 bytes, unless the kernel is asked to hold them back. It
// forgets that after 40 ms without traffic: hence again and again. Where bytes are not held this is
// not done either: a window without room for a segment opens by acknowledgements alone.
void RecvComm::while_idle() {
  const int off = 0;
  for (size_t i = 0; i < sockets_.data.size(); ++i) {
    if (readers_[i].roomy)
      ::setsockopt(sockets_.data[i].get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
  }
}

// What the sender is to be told of next; false where it knows all.
bool RecvComm::next_notice() {
  const uint64_t posted = recv_sync_ ? ring_.posted.load(std::memory_order_acquire) : credited_;
  if (credited_ != posted) {
    credited_ = posted;
    const Credit credit = make_credit(posted);
    std::memcpy(notice_, &credit, sizeof notice_);
    return true;
  }
  for (size_t i = 0; i < sockets_.data.size(); ++i) {
    SocketReader& reader = readers_[i];
    if (reader.returned == reader.read) continue;
    reader.returned = reader.read;
    const Return said = make_return(static_cast<uint32_t>(i), reader.read);
    std::memcpy(notice_, &said, sizeof notice_);
    return true;
  }
  return false;
}

// What there is no room for is told later, and then of all that has come meanwhile: while a sender
// waits for it there are receives, and this is asked again.
void RecvComm::exchange_notices() {
  while (notice_left_ > 0 || next_notice()) {
    if (notice_left_ == 0) notice_left_ = sizeof notice_;
    const ssize_t sent = ::send(sockets_.control.get(), notice_ + sizeof notice_ - notice_left_,
                                notice_left_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) notice_left_ -= static_cast<uint32_t>(sent);
    if (notice_left_ > 0) return;
  }
}

// Receives get their pages in order, all that they may need or none: then the oldest one that is
// without waits only for older ones, which have theirs and come to an end.
bool RecvComm::admitted(uint64_t sequence, uint64_t posted) {
  if (sequence < admitted_) return true;
  const uint64_t consumed = ring_.consumed.load(std::memory_order_acquire);
  bounce_.take_back(consumed);
  for (; admitted_ < posted; ++admitted_) {
    const Request& request = ring_.slot(admitted_);
    if (request.scattered() && !bounce_.admit(admitted_, request.capacity)) break;
  }
  const bool starved = sequence >= admitted_;
  if (starved) starved_at_ = consumed;
  if (starved != starved_.load(std::memory_order_relaxed))
    starved_.store(starved, std::memory_order_seq_cst);
  return !starved;
}

// Pages have come back since they did not suffice; or what came behind bytes that are held was
// announced, and is not looked at before they are let go.
bool RecvComm::goes_on_unannounced() const {
  if (starved_.load(std::memory_order_relaxed) &&
      ring_.consumed.load(std::memory_order_seq_cst) != starved_at_)
    return true;
  return std::any_of(&readers_[0], &readers_[0] + sockets_.data.size(),
                     [](const SocketReader& reader) { return reader.holds() || reader.starved(); });
}

void RecvComm::announce(Request& request, const ChunkHeader& header) {
  request.left = request.total = header.total;
  request.announced = true;
  if (in_place_ == nullptr) bounce_.begin(header.sequence, header.total);
  if (header.total == 0) complete(request, header.sequence);
}

// Of a message whose receive may still take some of it.
bool RecvComm::is_current(const ChunkHeader& header) const {
  const auto& oldest = in_place_ != nullptr ? ring_.consumed : ring_.completed;
  return header.sequence >= oldest.load(std::memory_order_acquire);
}

// The receive of a message: that of its number, and of several that were posted together the one
// with its tag. Null: none has it.
Request* RecvComm::match(const ChunkHeader& header) {
  Request& named = ring_.slot(header.sequence);
  if (in_place_ == nullptr) return &named;
  Request* free = nullptr;
  for (uint64_t k = named.first; k < named.first + named.together; ++k) {
    Request& each = ring_.slot(k);
    if (each.announced && each.message == header.sequence) return &each;
    const bool fits = !each.announced && (named.together == 1 || each.tag == header.tag);
    if (fits && free == nullptr) free = &each;
  }
  if (free != nullptr) free->message = header.sequence;
  return free;
}

RecvComm::Staged RecvComm::begin_piece(SocketReader& reader) {
  ChunkHeader header;
  std::memcpy(&header, &reader.stage[reader.begin], sizeof header);
  ChunkVerdict verdict = ChunkVerdict::kMalformed;
  if (plausible_chunk(header) && is_current(header)) {
    const uint64_t posted = ring_.posted.load(std::memory_order_acquire);
    if (header.sequence >= posted || !admitted(header.sequence, posted)) return Staged::kNotYet;
    if (in_place_ != nullptr) {
      const Request& named = ring_.slot(header.sequence);
      if (named.first + named.together > posted) return Staged::kNotYet;
    }
    Request* const matched = match(header);
    if (matched == nullptr) {
      fail(kNetInternalError, "a message whose tag none of several receives has", 0);
      return Staged::kRefused;
    }
    Request& request = *matched;
    verdict = judge_chunk(header,
                          {request.capacity, request.announced, request.total, request.scheduled});
    if (__builtin_expect(trap_ != nullptr, false) && verdict == ChunkVerdict::kTooLarge &&
        trap_->overflows())
      verdict = ChunkVerdict::kGood;
    if (verdict == ChunkVerdict::kGood) {
      trace(TraceStep::kHeader, *this, header.sequence, header.offset, header.length,
            &reader - &readers_[0]);
      if (!request.announced) announce(request, header);
      request.scheduled += header.length;
      reader.begin += sizeof header;
      if (header.length > 0) {
        reader.request = &request;
        reader.sequence = header.sequence;
        reader.left = header.length;
        reader.lent = (header.flags & kLent) != 0;
        talks_ |= reader.lent;
        reader.cursor = request.data + header.offset;
        reader.placed = request.placed;
        reader.scatter = nullptr;
        if (request.scattered()) {
          reader.scatter = &scatters_[&reader - &readers_[0]];
          reader.scatter->begin(header.sequence, header.offset, header.length);
          if (!cut(reader)) return Staged::kRefused;
        }
      }
      return Staged::kUsedUp;
    }
  }
  fail(kNetInternalError, verdict_text(verdict), 0);
  return Staged::kRefused;
}

RecvComm::Staged RecvComm::use_stage(SocketReader& reader) {
  for (;;) {
    if (reader.request != nullptr) {
      const uint64_t take = std::min<uint64_t>(reader.room(), reader.staged());
      if (take == 0) return Staged::kUsedUp;
      copy_from_stage(reader, take);
      arrived(reader, take);
      if (reader.request != nullptr && !cut(reader)) return Staged::kRefused;
    } else {
      if (reader.staged() < sizeof(ChunkHeader)) return Staged::kUsedUp;
      const Staged outcome = begin_piece(reader);
      if (outcome != Staged::kUsedUp) return outcome;
    }
  }
}

bool RecvComm::cut(SocketReader& reader) {
  if (reader.scatter == nullptr || reader.scatter->cut(bounce_)) return true;
  fail(kNetInternalError, "a message of more than 2047 fragments into GPU memory", 0);
  return false;
}

void RecvComm::copy_from_stage(SocketReader& reader, uint64_t bytes) {
  const uint8_t* from = &reader.stage[reader.begin];
  reader.begin += static_cast<uint32_t>(bytes);
  if (reader.placed) {
    put(reader, &reader.stage[reader.begin - bytes], bytes);
    return;
  }
  if (reader.scatter == nullptr) {
    std::memcpy(reader.cursor, from, bytes);
    return;
  }
  iovec parts[Scatter::kCut + 1];
  reader.scatter->parts(bounce_, parts);
  for (const iovec* part = parts; bytes > 0; ++part) {
    const uint64_t take = std::min<uint64_t>(bytes, part->iov_len);
    std::memcpy(part->iov_base, from, take);
    from += take;
    bytes -= take;
  }
}

bool RecvComm::put(SocketReader& reader, uint8_t* from, uint64_t bytes) {
  const Request& request = *reader.request;
  if (__builtin_expect(trap_ != nullptr, false) && reader.cursor == request.data &&
      trap_->damage(reader.sequence).corrupt)
    *from ^= 0x01;
  if (in_place_->put(static_cast<size_t>(&reader - &readers_[0]), request, reader.cursor, from,
                     bytes))
    return true;
  fail(kNetUnhandledCudaError, "the driver copies nothing into GPU memory", 0);
  return false;
}

void RecvComm::arrived(SocketReader& reader, uint64_t bytes) {
  reader.left -= bytes;
  reader.request->left -= bytes;
  trace(TraceStep::kReceived, *this, reader.sequence, 0, bytes, &reader - &readers_[0]);
  if (reader.scatter != nullptr) {
    reader.scatter->arrived(bounce_, bytes);
  } else {
    reader.cursor += bytes;
  }
  if (reader.left > 0) return;
  Request& request = *std::exchange(reader.request, nullptr);
  reader.scatter = nullptr;
  reader.placed = false;
  if (reader.lent) {
    ++reader.read;
    exchange_notices();
  }
  if (request.left == 0) complete(request, reader.sequence);
}

void RecvComm::complete(Request& request, uint64_t sequence) {
  if (__builtin_expect(trap_ != nullptr, false)) spring_traps(request, sequence);
  if (request.scattered()) {
    if (!bounce_.copy_to_gpu(sequence))
      fail(kNetUnhandledCudaError, "the driver copies nothing into the bounce buffer", 0);
    if (trap_ == nullptr || !trap_->counts_late()) bounce_.publish(sequence);
  }
  trace(TraceStep::kWhole, *this, sequence, 0, request.total);
}

void RecvComm::before_done(uint64_t sequence) {
  if (trap_->counts_late() && ring_.slot(sequence).scattered()) bounce_.publish(sequence);
}

// Of a trap: whether the reader has pages, now that others may have given some back.
bool RecvComm::fed(SocketReader& reader) {
  bounce_.take_back(ring_.consumed.load(std::memory_order_acquire));
  return cut(reader) && !reader.starved();
}

void RecvComm::spring_traps(Request& request, uint64_t sequence) {
  if (request.placed) return;  // see put
  const TrapState::Damage damage = trap_->damage(sequence);
  NetUnpackFragment* fragments = bounce_.descriptors(sequence);
  if (damage.corrupt && request.total > 0)
    *(request.scattered() ? bounce_.page_bytes(fragments[0].src_off) : request.data) ^= 0x01;
  if (!request.scattered()) return;
  if (damage.reorder) std::reverse(fragments, fragments + bounce_.listed(sequence));
  if (damage.duplicate) bounce_.duplicate_last(sequence);
  if (trap_->leaks(sequence)) bounce_.lose_page(sequence);
}

// Into what is left of the piece, and behind it into the stage.
ssize_t RecvComm::read(SocketReader& reader, int fd, uint64_t* wanted) {
  const iovec stage = {&reader.stage[reader.end], reader.stage.size() - reader.end};
  if (reader.scatter != nullptr) {
    iovec parts[Scatter::kCut + 1];
    int count = reader.scatter->parts(bounce_, parts);
    *wanted = reader.scatter->room();
    if (reader.scatter->all_cut()) {
      parts[count++] = stage;
      *wanted += stage.iov_len;
    }
    return ::readv(fd, parts, count);
  }
  if (reader.placed) {
    const iovec parts[2] = {
        {in_place_->buffer(&reader - &readers_[0], reader.request->memory), reader.room()}, stage};
    const bool to_its_end = reader.room() == reader.left;
    *wanted = reader.room() + (to_its_end ? stage.iov_len : 0);
    return ::readv(fd, parts, to_its_end ? 2 : 1);
  }
  *wanted = reader.left + stage.iov_len;
  if (reader.left == 0) return ::recv(fd, stage.iov_base, stage.iov_len, MSG_DONTWAIT);
  const iovec parts[2] = {{reader.cursor, reader.left}, stage};
  return ::readv(fd, parts, 2);
}

// The kernel acknowledges bytes when they are taken out of the socket, and where data flows one way
// only that is a packet of its own: a third of the round trip of 8 bytes, before the caller knows
// that they are there. So who has waited for a message looks at it first, and takes it out when
// there was time for an answer. Held bytes narrow the window of the sender: only whole messages are
// held, and only where there is room for more, and the socket is tried again without an
// announcement, which may never come.
ssize_t RecvComm::peek(SocketReader& reader, int fd) {
  const ssize_t got = ::recv(fd, &reader.stage[reader.end], reader.stage.size() - reader.end,
                             MSG_DONTWAIT | MSG_PEEK);
  if (got > 0) reader.peeked = static_cast<uint32_t>(got);
  return got;
}

bool RecvComm::let_go(SocketReader& reader, int fd) {
  while (reader.peeked > 0) {
    // MSG_TRUNC spares the copy on TCP; other sockets write what is there already.
    const ssize_t gone = ::recv(fd, &reader.stage[reader.end - reader.peeked], reader.peeked,
                                MSG_DONTWAIT | MSG_TRUNC);
    if (gone < 0 && errno == EINTR) continue;
    if (gone <= 0) {
      reader.peeked = 0;  // and there is nothing to be let go of any more
      return false;
    }
    reader.peeked -= static_cast<uint32_t>(gone);
  }
  return true;
}

Comm::Step RecvComm::step(int socket) {
  SocketReader& reader = readers_[socket];
  const uint32_t staged = reader.staged();
  if (__builtin_expect(trap_ != nullptr, false) && trap_->warns_of_receives() &&
      !ring_.slot(ring_.completed.load(std::memory_order_relaxed)).scattered())
    SOFTTCPX_WARN("receive into host memory : attempt on data socket %d", socket);
  if (__builtin_expect(reader.starved(), false) && !fed(reader)) return Step::kNothingToDo;
  if (staged > 0) {
    const Staged before = use_stage(reader);
    if (before != Staged::kUsedUp) return Step::kNothingToDo;
  }
  if (__builtin_expect(reader.starved(), false)) return Step::kNothingToDo;
  // What was in the stage has moved: pages may have gone to it that others were refused before.
  const bool moved = reader.staged() < staged;
  const int fd = sockets_.data[socket].get();
  if (direct_ && reader.visits_left > 0) {
    --reader.visits_left;
    return Step::kNothingToDo;
  }
  reader.visits_left = 0;
  reader.waited &= direct_ && reader.roomy;  // else nothing is to be held
  if (!let_go(reader, fd)) return lost(socket, errno, moved);

  // Only the beginning of a header can be left in the stage.
  if (reader.staged() > 0)
    std::memmove(&reader.stage[0], &reader.stage[reader.begin], reader.staged());
  reader.end = reader.staged();
  reader.begin = 0;

  uint64_t wanted = reader.stage.size() - reader.end;
  const bool peeks = reader.waited && reader.request == nullptr;
  const ssize_t got = peeks ? peek(reader, fd) : read(reader, fd, &wanted);
  reader.waited = got < 0 && errno == EAGAIN;
  if (reader.waited) return moved ? Step::kMovedAll : Step::kBlocked;
  if (got < 0 && errno == EINTR) return Step::kNothingToDo;
  if (got <= 0) return lost(socket, got < 0 ? errno : 0, moved);

  const uint64_t direct = std::min<uint64_t>(static_cast<uint64_t>(got), reader.room());
  if (direct > 0) {
    if (reader.placed &&
        !put(reader, in_place_->buffer(static_cast<size_t>(socket), reader.request->memory),
             direct))
      return Step::kBlocked;
    arrived(reader, direct);
  }
  if (reader.request != nullptr && !cut(reader)) return Step::kBlocked;
  reader.end += static_cast<uint32_t>(static_cast<uint64_t>(got) - direct);
  const Staged after = use_stage(reader);
  if (after == Staged::kRefused) return Step::kBlocked;
  if (__builtin_expect(reader.starved(), false)) return Step::kMovedForNow;
  if (after == Staged::kNotYet) return Step::kMoved;  // stays ready: the stage is not empty
  const bool all = static_cast<uint64_t>(got) < wanted;
  if (!peeks) return all ? Step::kMovedAll : Step::kMoved;
  if (!all || reader.request != nullptr || !reader.holds()) return Step::kMoved;
  reader.visits_left = kVisitsForAnAnswer;
  return Step::kMovedForNow;
}

Comm::Step RecvComm::lost(int socket, int error_number, bool moved) {
  const SocketReader& reader = readers_[socket];
  if (loses_peers()) {
    lose_socket_quietly(socket, error_number);
    return moved ? Step::kMovedAll : Step::kBlocked;
  }
  lose_socket(socket);
  if (reader.request != nullptr || reader.staged() > 0)
    fail(kNetSystemError, "a data socket ended within a message", error_number);
  return moved ? Step::kMovedAll : Step::kBlocked;
}

// A peer that closes or dies does so on every socket, in any order, and what it had sent before
// still arrives. So a loss ends the connection only when nothing more can come, or comes; while the
// caller keeps the pages for it, it has come and is not read.
void RecvComm::judge_losses(bool moved) {
  if (!losing_ || (loses_peers() && !control_ended_)) return;
  const bool starved = starved_.load(std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  const uint64_t posted = ring_.posted.load(std::memory_order_relaxed);
  // What comes while nothing is posted, or no page is free, is not read: it has its second after.
  if (moved || starved || posted != judged_) quiet_since_ = now;
  judged_ = posted;
  if (starved) return;
  if (data_bits_ == 0) {
    fail(kNetSystemError, "the peer closed while receives were pending", 0);
  } else if (now - quiet_since_ > kLastBytes) {
    fail(kNetSystemError, "a socket of the peer is lost and nothing more arrives", 0);
  }
}

}  // namespace softtcpx
