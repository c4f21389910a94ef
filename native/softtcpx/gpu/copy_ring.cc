#include "softtcpx/gpu/copy_ring.h"

#include <time.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "softtcpx/environment/log.h"

namespace softtcpx {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr std::chrono::seconds kLastCopies{2};

// Where pieces begin: copies are quicker so, and fewer pages are lent to sockets.
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

CopyRing::CopyRing(std::shared_ptr<CopyQueue> queue, uint64_t piece_bytes, int64_t pieces)
    : queue_(std::move(queue)),
      piece_bytes_(aligned(piece_bytes)),
      bytes_(piece_bytes_ * static_cast<uint64_t>(pieces)) {
  if (!memory_.open(gpu(), bytes_))
    throw std::system_error(errno, std::generic_category(), "memory for copies from the GPU");
  ring_ = memory_.host();
  SOFTTCPX_INFO("a sending connection from GPU %d: %llu bytes page-locked", gpu().ordinal,
                static_cast<unsigned long long>(memory_.bytes()));
}

CopyRing::~CopyRing() {
  const CurrentContext current(gpu());
  if (current.code() != 0) {  // the context is gone, and with it all that was under way
    queue_->forget(*this);
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kLastCopies;
  const auto wait = [&] {
    while (is_copying() && std::chrono::steady_clock::now() < deadline) {
      const timespec pause{0, 20'000};  // copies take microseconds; a stuck GPU for ever
      ::nanosleep(&pause, nullptr);
    }
  };
  wait();
  queue_->forget(*this);  // behind another caller that is just handing them over
  wait();
  if (!is_copying()) return;
  SOFTTCPX_WARN("copies from GPU %d do not end; their %llu bytes stay page-locked", gpu().ordinal,
                static_cast<unsigned long long>(memory_.bytes()));
  memory_.abandon();
  queue_->give_up();
}

// What was released has landed. A stream that has failed does no more either.
bool CopyRing::is_copying() {
  if (freed_ == begun_) return false;
  queue_->hand_over();
  return queue_->query() == kCudaNotReady && !queue_->landed(newest_);
}

bool CopyRing::has_room() const {
  const uint64_t freed = freed_.load(std::memory_order_acquire);
  if (begun_.load(std::memory_order_relaxed) - freed == kPieces) return false;
  return in_use(end_) + piece_bytes_ <= bytes_ && queue_->has_room();
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
  newest_ = queue_->begin(*this, to, from, length);
  end_ = start + aligned(length);
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  pieces_[begun % kPieces] = {to, length, newest_, end_, false};
  begun_.store(begun + 1, std::memory_order_seq_cst);  // before the look whether the owner sleeps
  return newest_;
}

void CopyRing::ask() {
  const int code = queue_->query();
  if (code != 0 && code != kCudaNotReady) copy_failed("cuStreamQuery", code);
}

void CopyRing::copy_failed(const char* call, int code) {
  if (failed()) return;
  failed_call_.store(call);
  code_.store(code, std::memory_order_release);
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
