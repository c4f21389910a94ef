// GPU memory on its way to the sockets: pieces of messages that the GPU's copy engine brings into a
// ring of page-locked memory, one behind the other.
//
// The GPU writes a number into a word of that memory when a copy has landed, and whoever waits
// looks there: asking the driver would take a lock that all threads of the process share.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "softtcpx/cuda.h"
#include "softtcpx/pinned.h"
#include "softtcpx/small_copy.h"

namespace softtcpx {

class CopyRing {
 public:
  struct Piece {
    uint8_t* data;
    uint64_t length;
    uint32_t ticket;  // it has landed when this is told
    uint64_t end;     // of its stretch of the ring, and of what was skipped before it
    bool sent;
  };

  // Pieces of up to `kernel_bytes` are copied by a kernel. Throws CudaError, or std::system_error
  // where the operating system has no memory to give.
  CopyRing(const Gpu& gpu, uint64_t piece_bytes, int64_t pieces, int64_t kernel_bytes);
  // Waits for what is under way.
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  // Of the owner. What follows needs the context to be current on its thread.
  bool has_room() const;
  // Begins to copy the next piece, no longer than `piece_bytes`; only where there is room.
  void begin(const uint8_t* from, uint64_t length);
  // Behind the last of several `begin`: so that the GPU tells their end. Failures are kept.
  void tell();
  // Asks the driver for failures that came later than the call that caused them.
  void ask();
  // A call has failed: nothing more lands, for good.
  bool failed() const { return code_ != 0; }
  std::string failure() const { return CudaError(*gpu_.driver, failed_call_, code_).what(); }

  // Nothing is on its way, and nothing has landed that was not taken.
  bool starved() const { return begun_ == taken_; }
  // The oldest piece that was not taken yet; null when there is none.
  Piece* next() { return taken_ != begun_ ? &pieces_[taken_ % kPieces] : nullptr; }
  bool landed(const Piece& piece) const {
    const uint32_t told = __atomic_load_n(told_, __ATOMIC_ACQUIRE);
    return static_cast<int32_t>(told - piece.ticket) >= 0;
  }
  void take() { ++taken_; }
  // Its bytes are with the kernel. In any order.
  void sent(Piece& piece);

  const Gpu& gpu() const { return gpu_; }

 private:
  static constexpr uint64_t kPieces = 64;  // under way, landed or being sent: a power of two

  void begin_copy(uint8_t* to, const uint8_t* from, uint64_t length);
  CudaAddress told_at() const {
    return reinterpret_cast<CudaAddress>(memory_.as_seen_by_gpu(told_));
  }
  void note(const char* call, int code);
  bool idle();

  const Gpu gpu_;
  const uint64_t piece_bytes_;  // with what aligns the next one
  const uint64_t bytes_;
  PinnedMemory memory_;  // a page with the word, then the ring
  uint32_t* told_ = nullptr;
  uint8_t* ring_ = nullptr;
  CudaStream stream_ = nullptr;
  uint64_t kernel_bytes_ = 0;  // of the longest piece that a kernel copies; 0: none
  SmallCopy small_copy_;

  std::array<Piece, kPieces> pieces_{};
  uint64_t begun_ = 0, taken_ = 0, freed_ = 0;  // pieces, counted for ever
  uint64_t end_ = 0, free_from_ = 0;            // bytes of the ring, counted for ever
  uint32_t tickets_ = 0;
  uint64_t untold_ = 0;  // bytes begun since the last ticket

  const char* failed_call_ = "";
  int code_ = 0;  // of the first call that failed
};

}  // namespace softtcpx
