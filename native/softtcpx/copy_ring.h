// GPU memory on its way to the sockets: pieces of messages that the GPU's copy engine brings into a
// ring of page-locked memory, one behind the other.
//
// The GPU writes a number into a word of that memory when a copy has landed, and whoever waits
// looks there: asking the driver would take a lock that all threads of the process share. For the
// same reason one thread begins all copies, the caller of the plugin; the owner of the connection
// takes what has landed, and calls the driver never.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "softtcpx/cuda.h"
#include "softtcpx/pinned.h"

namespace softtcpx {

class CopyRing {
 public:
  static constexpr uint64_t kPieces = 64;  // under way, landed or being sent: a power of two

  struct Piece {
    uint8_t* data;
    uint64_t length;
    uint32_t ticket;  // it has landed when this is told
    uint64_t end;     // of its stretch of the ring, and of what was skipped before it
    bool free;
  };

  // Throws CudaError, or std::system_error where the operating system has no memory to give.
  CopyRing(const Gpu& gpu, uint64_t piece_bytes, int64_t pieces);
  // Waits for what is under way.
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  // The caller's side. Where it calls the driver the context must be current.
  bool has_room() const;
  // Begins to copy the next piece, no longer than `piece_bytes`; only where there is room. Its
  // ticket.
  uint32_t begin(const uint8_t* from, uint64_t length);
  // Behind the last of several `begin`: so that the GPU tells their end. Failures are kept.
  void tell();
  // Asks the driver for failures that came later than the call that caused them.
  void ask();
  // A call has failed: nothing more lands, for good.
  bool failed() const { return code_ != 0; }
  std::string failure() const { return CudaError(*gpu_.driver, failed_call_, code_).what(); }

  // The owner's side.
  // The oldest piece that was not taken yet; null when there is none.
  Piece* next() {
    return taken_ != begun_.load(std::memory_order_seq_cst) ? &pieces_[taken_ % kPieces] : nullptr;
  }
  void take() { ++taken_; }
  // Nobody looks at its bytes any more. In any order.
  void release(Piece& piece);
  // Half of it or more is in use: soon there is no room.
  bool is_tight() const;

  // Where its first piece begins: what is true of this memory is true of all of it.
  const uint8_t* first_page() const { return ring_; }

  // Whoever asks.
  bool landed(uint32_t ticket) const {
    const uint32_t told = __atomic_load_n(told_, __ATOMIC_ACQUIRE);
    return static_cast<int32_t>(told - ticket) >= 0;
  }

  const Gpu& gpu() const { return gpu_; }

 private:
  CudaAddress told_at() const {
    return reinterpret_cast<CudaAddress>(memory_.as_seen_by_gpu(told_));
  }
  // Bytes that are in use when the next piece is behind `end`, with those that it cannot have.
  uint64_t in_use(uint64_t end) const;
  void note(const char* call, int code);
  bool idle();

  const Gpu gpu_;
  const uint64_t piece_bytes_;  // with what aligns the next one
  const uint64_t bytes_;
  PinnedMemory memory_;  // a page with the word, then the ring
  uint32_t* told_ = nullptr;
  uint8_t* ring_ = nullptr;
  CudaStream stream_ = nullptr;

  // A piece is the caller's until `begun_` hands it over, and then the owner's until `freed_` does.
  std::array<Piece, kPieces> pieces_{};

  // Written by the caller. Pieces and bytes of the ring are counted for ever.
  alignas(64) std::atomic<uint64_t> begun_{0};
  uint64_t end_ = 0;
  uint32_t tickets_ = 0;
  uint64_t untold_ = 0;  // bytes begun since the last ticket
  const char* failed_call_ = "";
  int code_ = 0;  // of the first call that failed

  // Written by the owner.
  alignas(64) uint64_t taken_ = 0;
  std::atomic<uint64_t> free_from_{0}, freed_{0};
};

}  // namespace softtcpx
