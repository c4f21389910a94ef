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

// Where pieces begin: copies are quicker so.
constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

CopyRing::CopyRing(const Gpu& gpu, uint64_t piece_bytes, int64_t pieces, int64_t kernel_bytes)
    : gpu_(gpu),
      piece_bytes_(aligned(piece_bytes)),
      bytes_(piece_bytes_ * static_cast<uint64_t>(pieces)) {
  if (!memory_.open(gpu, kPageBytes + bytes_))
    throw std::system_error(errno, std::generic_category(), "memory for copies from the GPU");
  told_ = reinterpret_cast<uint32_t*>(memory_.host());
  ring_ = memory_.host() + kPageBytes;
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuStreamCreate", gpu_.driver->stream_create(&stream_, kNonBlocking));
  if (kernel_bytes > 0) {
    const int code = small_copy_.load(gpu_);
    if (code == 0) kernel_bytes_ = static_cast<uint64_t>(kernel_bytes);
    if (code != 0)
      SOFTTCPX_WARN("GPU %d takes no kernel for small copies (%s): its copy engine does them",
                    gpu_.ordinal, cuda_error_name(*gpu_.driver, code));
  }
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
  small_copy_.unload();
  gpu_.driver->stream_destroy(stream_);
}

// A stream that has failed does no more either.
bool CopyRing::idle() { return gpu_.driver->stream_query(stream_) != kCudaNotReady; }

bool CopyRing::has_room() const {
  if (begun_ - freed_ == kPieces) return false;
  const uint64_t at = end_ % bytes_;
  const uint64_t skipped = at + piece_bytes_ > bytes_ ? bytes_ - at : 0;
  return end_ + skipped + piece_bytes_ - free_from_ <= bytes_;
}

void CopyRing::begin(const uint8_t* from, uint64_t length) {
  const uint64_t at = end_ % bytes_;
  const uint64_t start = at + length > bytes_ ? end_ + bytes_ - at : end_;
  uint8_t* const to = ring_ + start % bytes_;
  const uint32_t ticket = tickets_ + 1;
  begin_copy(to, from, length);
  if (failed()) return;
  end_ = start + aligned(length);
  pieces_[begun_++ % kPieces] = {to, length, ticket, end_, false};
  if (untold_ >= kToldAtLeast) tell();
}

// By a kernel, which tells of all that came before it, or by the copy engine.
void CopyRing::begin_copy(uint8_t* to, const uint8_t* from, uint64_t length) {
  const auto source = reinterpret_cast<CudaAddress>(from);
  if (length <= kernel_bytes_ && source % kSmallCopyUnit == 0) {
    const auto target = reinterpret_cast<CudaAddress>(memory_.as_seen_by_gpu(to));
    const auto units = static_cast<unsigned>((length + kSmallCopyUnit - 1) / kSmallCopyUnit);
    untold_ = 0;
    note("cuLaunchKernel",
         small_copy_.begin({source, target, told_at(), units, ++tickets_}, stream_));
    return;
  }
  untold_ += length;
  note("cuMemcpyDtoHAsync", gpu_.driver->memcpy_dtoh_async(to, source, length, stream_));
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

void CopyRing::sent(Piece& piece) {
  piece.sent = true;
  for (; freed_ != taken_ && pieces_[freed_ % kPieces].sent; ++freed_)
    free_from_ = pieces_[freed_ % kPieces].end;
}

}  // namespace softtcpx
