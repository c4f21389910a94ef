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

// Looks at a copy that does not land, before the driver is asked whether it has failed.
constexpr uint32_t kLooksAQuestion = 1 << 14;

// The window is about half the buffer, and a sender cuts segments of up to half the window. With
// less room than a segment it waits for a timer, 200 ms and more each time: nothing tells it of a
// little more. Bytes are held only if all that can be held leaves room for a segment.
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
      bounce_(device.settings, sockets_.data.size(), trap_.get()),
      notices_(sockets_.data.size()) {
  for (size_t i = 0; i < sockets_.data.size(); ++i)
    readers_[i].roomy =
        leaves_room_for_a_segment(sockets_.data[i].get(), SocketReader::kStageBytes);
}

void RecvComm::open_bounce() {
  if (in_place_ != nullptr) return;
  bounce_.open(gpu_);
  if (bounce_.pool().mirror() != 0) copier_ = std::make_unique<PageCopier>(gpu_);
  if (gpu_)
    SOFTTCPX_INFO("a receiving connection to GPU %d: %u bounce pages, %zu bytes page-locked",
                  gpu_.ordinal, bounce_.pool().pages(), bounce_.pool().bytes());
}

bool RecvComm::serve_gpu_memory(const Gpu& gpu) {
  return in_place_ != nullptr ? in_place_->serve(Memory::kGpu, gpu) : bounce_.pool().pinned();
}

int RecvComm::receive(void* data, int64_t bytes, const Region* region, void** request) {
  if (region != nullptr && region->memory != Memory::kHost) {
    if (!bounce_.offered()) return kNetInvalidArgument;
    // No GPU of ours: no page-locked pages, and no ordinal.
    if (region->memory == Memory::kGpu && region->gpu.ordinal != gpu_.ordinal)
      return kNetInvalidArgument;
    if (!bounce_.takes(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))))
      return kNetInvalidArgument;
  }
  return post(data, bytes, region, request);
}

int RecvComm::consumed(const Request& request) {
  const uint64_t oldest = ring_.consumed.load(std::memory_order_relaxed);
  if (oldest == ring_.seen || &ring_.slot(oldest) != &request) return kNetInternalError;
  if (request.scattered()) bounce_.poison(oldest);
  ring_.consumed.store(oldest + 1, std::memory_order_seq_cst);  // before the look at who waited
  if (bounce_.waited()) wake_owner();
  return kNetSuccess;
}

int RecvComm::finish() {
  leave_owner();
  // A socket that is closed with bytes in it resets the connection.
  for (size_t i = 0; i < sockets_.data.size(); ++i) readers_[i].let_go(sockets_.data[i].get());
  const uint32_t leaked = bounce_.leaked(ring_);
  if (leaked == 0 || failed()) return kNetSuccess;
  SOFTTCPX_WARN(
      "receive connection with %s: closed with %u bounce pages missing; %llu finished "
      "receives were not consumed",
      address_text(sockets_.peer).c_str(), leaked,
      static_cast<unsigned long long>(ring_.seen - ring_.consumed.load(std::memory_order_relaxed)));
  return kNetInternalError;
}

void RecvComm::prepare(Request& request, uint64_t) {
  request.placed = false;
  if (in_place_ != nullptr)
    in_place_->prepare(request, ring_.posted.load(std::memory_order_relaxed));
  request.total = 0;
  request.left = 1;  // until a header says how much it is
}

// Data flows one way only here: unless the kernel is asked to hold acknowledgements back, every
// small message costs one of its own, a fifth of the round trip of 8 bytes. It forgets that after
// 40 ms without traffic: hence again and again. Where bytes are not held this is not done either: a
// window without room for a segment opens by acknowledgements alone.
void RecvComm::while_idle() {
  const int off = 0;
  for (size_t i = 0; i < sockets_.data.size(); ++i) {
    if (readers_[i].roomy)
      ::setsockopt(sockets_.data[i].get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
  }
}

void RecvComm::exchange_notices() {
  notices_.send(sockets_.control.get(),
                recv_sync_ ? ring_.posted.load(std::memory_order_acquire) : 0);
}

// Pages have come back since they did not suffice; or what came behind bytes that are held was
// announced, and is not looked at before they are let go.
bool RecvComm::goes_on_unannounced() const {
  if (bounce_.was_fed(ring_)) return true;
  return std::any_of(&readers_[0], &readers_[0] + sockets_.data.size(),
                     [](const SocketReader& reader) { return reader.holds() || reader.starved(); });
}

void RecvComm::announce(Request& request, const ChunkHeader& header) {
  request.left = request.total = header.total;
  request.announced = true;
  if (in_place_ == nullptr) bounce_.announce(header);
  if (header.total == 0) complete(request, header.sequence);
}

// Of a message whose receive may still take some of it.
bool RecvComm::is_current(const ChunkHeader& header) const {
  const auto& oldest = in_place_ != nullptr ? ring_.consumed : ring_.completed;
  return header.sequence >= oldest.load(std::memory_order_acquire);
}

RecvComm::Staged RecvComm::begin_piece(SocketReader& reader) {
  ChunkHeader header;
  std::memcpy(&header, &reader.stage[reader.begin], sizeof header);
  ChunkVerdict verdict = ChunkVerdict::kMalformed;
  if (plausible_chunk(header) && is_current(header)) {
    const uint64_t posted = ring_.posted.load(std::memory_order_acquire);
    if (header.sequence >= posted || !bounce_.admitted(header.sequence, posted, ring_))
      return Staged::kNotYet;
    if (in_place_ != nullptr) {
      const Request& named = ring_.slot(header.sequence);
      if (named.first + named.together > posted) return Staged::kNotYet;
    }
    Request* const matched =
        in_place_ != nullptr ? in_place_->match(ring_, header) : &ring_.slot(header.sequence);
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
            number_of(reader));
      if (!request.announced) announce(request, header);
      request.scheduled += header.length;
      reader.begin += sizeof header;
      reader.expects_large = header.length > SocketReader::kStageBytes;
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
          reader.scatter = bounce_.begin(number_of(reader), header);
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
  if (reader.scatter == nullptr || bounce_.cut(*reader.scatter)) return true;
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
  bounce_.copy(*reader.scatter, from, bytes);
}

bool RecvComm::put(SocketReader& reader, uint8_t* from, uint64_t bytes) {
  const Request& request = *reader.request;
  if (__builtin_expect(trap_ != nullptr, false) && reader.cursor == request.data &&
      trap_->damage(reader.sequence).corrupt)
    *from ^= 0x01;
  if (in_place_->put(number_of(reader), request, reader.cursor, from, bytes)) return true;
  fail(kNetUnhandledCudaError, "the driver copies nothing into GPU memory", 0);
  return false;
}

void RecvComm::arrived(SocketReader& reader, uint64_t bytes) {
  reader.left -= bytes;
  reader.request->left -= bytes;
  trace(TraceStep::kReceived, *this, reader.sequence, 0, bytes, number_of(reader));
  if (reader.scatter != nullptr) {
    bounce_.arrived(*reader.scatter, bytes);
  } else {
    reader.cursor += bytes;
  }
  if (reader.left > 0) return;
  Request& request = *std::exchange(reader.request, nullptr);
  reader.scatter = nullptr;
  reader.placed = false;
  if (reader.lent) {
    notices_.was_read(number_of(reader));
    exchange_notices();
  }
  if (request.left == 0) complete(request, reader.sequence);
}

void RecvComm::complete(Request& request, uint64_t sequence) {
  if (__builtin_expect(trap_ != nullptr, false)) spring_traps(request, sequence);
  if (request.scattered() && !bounce_.complete(sequence))
    fail(kNetUnhandledCudaError, "the driver copies nothing into the bounce buffer", 0);
  trace(TraceStep::kWhole, *this, sequence, 0, request.total);
}

void RecvComm::before_done(uint64_t sequence) {
  if (ring_.slot(sequence).scattered()) bounce_.before_done(sequence);
}

bool RecvComm::is_in_reach(uint64_t sequence) {
  if (copier_ == nullptr) return true;
  const uint64_t completed = ring_.completed.load(std::memory_order_acquire);
  if (copied_ != completed) {
    const CurrentContext current(gpu_);
    for (; copied_ != completed; ++copied_) copy_pages(copied_);
  }
  const Request& request = ring_.slot(sequence);
  if (!request.scattered()) return true;
  if (copier_->code() == 0 && copier_->landed(request.number)) return true;
  if (++looks_ % kLooksAQuestion == 0) {
    const CurrentContext current(gpu_);
    copier_->ask();
  }
  if (copier_->code() != 0)  // numbers behind it are told all the same
    note_failure(kNetUnhandledCudaError,
                 CudaError(*gpu_.driver, copier_->failed_call(), copier_->code()).what(), 0);
  return false;
}

void RecvComm::copy_pages(uint64_t sequence) {
  Request& request = ring_.slot(sequence);
  if (!request.scattered()) return;
  const BouncePool& pool = bounce_.pool();
  const NetUnpackFragment* const all = pool.descriptors(sequence);
  PageCopier::Run runs[PageCopier::kMostRuns];
  uint32_t count = 0, end = 0;  // of the last run
  for (uint64_t i = 0; i < pool.published(sequence); ++i) {
    if (count > 0 && all[i].src_off == end) {
      runs[count - 1].bytes += all[i].len;
    } else {
      if (count == PageCopier::kMostRuns) {
        copier_->copy(runs, count);
        count = 0;
      }
      runs[count++] = {pool.mirror() + all[i].src_off, pool.page_bytes(all[i].src_off), all[i].len};
    }
    end = all[i].src_off + all[i].len;
  }
  if (count > 0) copier_->copy(runs, count);
  request.number = copier_->tell();
}

// Of a trap: whether the reader has pages, now that others may have given some back.
bool RecvComm::fed(SocketReader& reader) {
  bounce_.take_back(ring_);
  return cut(reader) && !reader.starved();
}

void RecvComm::spring_traps(Request& request, uint64_t sequence) {
  if (request.placed) return;  // see put
  if (request.scattered()) {
    bounce_.spring_traps(sequence, request.total);
  } else if (request.total > 0 && trap_->damage(sequence).corrupt) {
    *request.data ^= 0x01;
  }
}

// Into what is left of the piece, and behind it into the stage.
ssize_t RecvComm::read(SocketReader& reader, int fd, uint64_t* wanted) {
  const iovec stage = reader.rest_of_stage();
  if (reader.scatter != nullptr) {
    iovec parts[Scatter::kCut + 1];
    int count = bounce_.parts(*reader.scatter, parts);
    *wanted = reader.scatter->room();
    if (reader.scatter->all_cut()) {
      parts[count++] = stage;
      *wanted += stage.iov_len;
    }
    return ::readv(fd, parts, count);
  }
  if (reader.placed) {
    const iovec parts[2] = {
        {in_place_->buffer(number_of(reader), reader.request->memory), reader.room()}, stage};
    const bool to_its_end = reader.room() == reader.left;
    *wanted = reader.room() + (to_its_end ? stage.iov_len : 0);
    return ::readv(fd, parts, to_its_end ? 2 : 1);
  }
  *wanted = reader.left + stage.iov_len;
  if (reader.left == 0) return ::recv(fd, stage.iov_base, stage.iov_len, MSG_DONTWAIT);
  const iovec parts[2] = {{reader.cursor, reader.left}, stage};
  return ::readv(fd, parts, 2);
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
  if (!reader.let_go(fd)) return lost(socket, errno, moved);

  reader.compact();
  uint64_t wanted = reader.rest_of_stage().iov_len;
  const bool peeks = reader.waited && reader.request == nullptr && !reader.expects_large;
  const ssize_t got = peeks ? reader.peek(fd) : read(reader, fd, &wanted);
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
  const bool starved = bounce_.starved();
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
