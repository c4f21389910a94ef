// GPU memory on its way to the sockets: pieces of messages that the GPU's copy engine brings into a
// ring of page-locked memory, one behind the other.
//
// One thread begins all copies of a connection, the caller of the plugin: the driver's lock is one
// for all threads of a process. The owner of the connection takes what has landed, and calls the
// driver never.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "softtcpx/gpu/copy_queue.h"
#include "softtcpx/gpu/pinned.h"

namespace softtcpx {

class CopyRing final : private CopyQueue::Client {
 public:
  static constexpr uint64_t kPieces = 64;  // under way, landed or being sent: a power of two

  struct Piece {
    uint8_t* data;
    uint64_t length;
    uint32_t number;  // of the queue: it has landed when this is told
    uint64_t end;     // of its stretch of the ring, and of what was skipped before it
    bool free;
  };

  // Throws CudaError, or std::system_error where the operating system has no memory to give.
  CopyRing(std::shared_ptr<CopyQueue> queue, uint64_t piece_bytes, int64_t pieces);
  // Waits for what is under way.
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  // The caller's side. Where it calls the driver the context must be current.
  bool has_room() const;
  // Begins to copy the next piece, no longer than `piece_bytes`; only where there is room. Its
  // number. Failures are kept.
  uint32_t begin(const uint8_t* from, uint64_t length);
  // Of this ring's copies or another's: some wait, and it is time that they go on.
  bool is_due() const { return queue_->is_due(); }
  void hand_over() { queue_->hand_over(); }
  // Asks the driver for failures that came later than the call that caused them.
  void ask();
  // A call has failed: nothing more lands, for good.
  bool failed() const { return code_.load(std::memory_order_acquire) != 0; }
  std::string failure() const {
    return CudaError(*gpu().driver, failed_call_.load(), code_.load()).what();
  }

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
  bool landed(const Piece& piece) const { return landed(piece.number); }
  // With all that was begun before.
  bool landed(uint32_t number) const { return queue_->landed(number) && !failed(); }

  const Gpu& gpu() const { return queue_->gpu(); }

 private:
  // Bytes that are in use when the next piece is behind `end`, with those that it cannot have.
  uint64_t in_use(uint64_t end) const;
  void copy_failed(const char* call, int code) override;
  bool is_copying();

  const std::shared_ptr<CopyQueue> queue_;
  const uint64_t piece_bytes_;  // with what aligns the next one
  const uint64_t bytes_;
  PinnedMemory memory_;
  uint8_t* ring_ = nullptr;

  // A piece is the caller's until `begun_` hands it over, and then the owner's until `freed_` does.
  std::array<Piece, kPieces> pieces_{};

  // Written by the caller. Pieces and bytes of the ring are counted for ever.
  alignas(64) std::atomic<uint64_t> begun_{0};
  uint64_t end_ = 0;
  uint32_t newest_ = 0;  // number

  // Of the first call that failed; by whichever caller made it.
  std::atomic<const char*> failed_call_{""};
  std::atomic<int> code_{0};

  // Written by the owner.
  alignas(64) uint64_t taken_ = 0;
  std::atomic<uint64_t> free_from_{0}, freed_{0};
};

}  // namespace softtcpx
