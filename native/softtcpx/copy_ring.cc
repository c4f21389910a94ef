#include "softtcpx/copy_ring.h"

#include <time.h>

#include <cerrno>
#include <chrono>
#include <system_error>

#include "softtcpx/log.h"

namespace softtcpx {
namespace {

constexpr unsigned kNonBlocking = 1;  // of cuStreamCreate: does not wait for the default stream
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kToldAtLeast = 65536;  // small pieces share a ticket up to so many bytes
constexpr std::chrono::seconds kLastCopies{2};

// Where pieces begin: copies are quicker so, and fewer pages are lent to sockets.
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

CopyRing::CopyRing(const Gpu& gpu, uint64_t piece_bytes, int64_t pieces)
    : gpu_(gpu),
      piece_bytes_(aligned(piece_bytes)),
      bytes_(piece_bytes_ * static_cast<uint64_t>(pieces)) {
  if (!memory_.open(gpu, kPageBytes + bytes_))
    throw std::system_error(errno, std::generic_category(), "memory for copies from the GPU");
  told_ = reinterpret_cast<uint32_t*>(memory_.host());
  ring_ = memory_.host() + kPageBytes;
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuStreamCreate", gpu_.driver->stream_create(&stream_, kNonBlocking));
  SOFTTCPX_INFO("a sending connection from GPU %d: %llu bytes page-locked", gpu_.ordinal,
                static_cast<unsigned long long>(memory_.bytes()));
}

CopyRing::~CopyRing() {
  if (stream_ == nullptr) return;
  const CurrentContext current(gpu_);
  if (current.code() != 0) return;  // the context is gone, and with it all that was under way
  const auto deadline = std::chrono::steady_clock::now() + kLastCopies;
  while (!idle() && std::chrono::steady_clock::now() < deadline) {
    const timespec pause{0, 20'000};  // copies take microseconds; a stuck GPU for ever
    ::nanosleep(&pause, nullptr);
  }
  if (!idle()) {
    SOFTTCPX_WARN("copies from GPU %d do not end; their %llu bytes stay page-locked", gpu_.ordinal,
                  static_cast<unsigned long long>(memory_.bytes()));
    memory_.abandon();
    return;
  }
  gpu_.driver->stream_destroy(stream_);
}

// A stream that has failed does no more either.
bool CopyRing::idle() { return gpu_.driver->stream_query(stream_) != kCudaNotReady; }

bool CopyRing::has_room() const {
  const uint64_t freed = freed_.load(std::memory_order_acquire);
  if (begun_.load(std::memory_order_relaxed) - freed == kPieces) return false;
  return in_use(end_) + piece_bytes_ <= bytes_;
}

uint64_t CopyRing::in_use(uint64_t end) const {
  const uint64_t at = end % bytes_;
  const uint64_t skipped = at + piece_bytes_ > bytes_ ? bytes_ - at : 0;
  return end + skipped - free_from_.load(std::memory_order_acquire);
}

bool CopyRing::is_tight() const {
  const uint64_t begun = begun_.load(std::memory_order_acquire);
  const uint64_t used = begun - freed_.load(std::memory_order_relaxed);
  return used > 0 &&
         (2 * used >= kPieces || 2 * in_use(pieces_[(begun - 1) % kPieces].end) >= bytes_);
}

uint32_t CopyRing::begin(const uint8_t* from, uint64_t length) {
  const uint64_t at = end_ % bytes_;
  const uint64_t start = at + length > bytes_ ? end_ + bytes_ - at : end_;
  uint8_t* const to = ring_ + start % bytes_;
  const uint32_t ticket = tickets_ + 1;
  note("cuMemcpyDtoHAsync",
       gpu_.driver->memcpy_dtoh_async(to, reinterpret_cast<CudaAddress>(from), length, stream_));
  if (failed()) return ticket;
  untold_ += length;
  end_ = start + aligned(length);
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  pieces_[begun % kPieces] = {to, length, ticket, end_, false};
  begun_.store(begun + 1, std::memory_order_seq_cst);  // before the look whether the owner sleeps
  if (untold_ >= kToldAtLeast) tell();
  return ticket;
}

void CopyRing::tell() {
  if (untold_ == 0 || failed()) return;
  untold_ = 0;
  note("cuStreamWriteValue32",
       gpu_.driver->stream_write_value32(stream_, told_at(), ++tickets_, 0));
}

void CopyRing::ask() {
  const int code = gpu_.driver->stream_query(stream_);
  if (code != kCudaNotReady) note("cuStreamQuery", code);
}

void CopyRing::note(const char* call, int code) {
  if (code == 0 || failed()) return;
  failed_call_ = call;
  code_ = code;
}

void CopyRing::release(Piece& piece) {
  piece.free = true;
  const uint64_t before = freed_.load(std::memory_order_relaxed);
  uint64_t freed = before;
  while (freed != taken_ && pieces_[freed % kPieces].free) ++freed;
  if (freed == before) return;
  free_from_.store(pieces_[(freed - 1) % kPieces].end, std::memory_order_release);
  freed_.store(freed, std::memory_order_release);
}

}  // namespace softtcpx
