// Receives of a connection into bounce pages: which of them have their pages, where each socket is
// read into, and what the traps do to them.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/bounce.h"
#include "softtcpx/transfer/requests.h"
#include "softtcpx/transfer/traps.h"

namespace softtcpx {

class BounceReceives {
 public:
  // `trap`: of the connection; null: none.
  BounceReceives(const Settings& settings, size_t sockets, const TrapState* trap)
      : sockets_(sockets), trap_(trap), pool_(settings) {}

  // The caller's part.
  // Page-locked and mapped where there is a GPU. Throws as BouncePool::open.
  void open(const Gpu& gpu) { pool_.open(gpu); }
  const BouncePool& pool() const { return pool_; }
  // The caller of accept knows how to unpack: from now on receives into GPU memory are taken.
  NetUnpackDevice* offer();
  bool offered() const { return offered_; }
  // Before a receive of so many bytes is posted; false: the connection has too few pages for it.
  bool takes(uint64_t bytes);
  // What is unpacked after this is seen to be wrong.
  void poison(uint64_t sequence) const { pool_.poison(sequence); }
  // A slot was freed: the owner has waited for its pages.
  bool waited() const { return starved_.load(std::memory_order_seq_cst); }
  uint32_t leaked(const RequestRing& ring);

  // The owner's part.
  // Whether the receive has all pages that it may need, or needs none.
  bool admitted(uint64_t sequence, uint64_t posted, RequestRing& ring);
  // The next receive waits for pages.
  bool starved() const { return starved_.load(std::memory_order_relaxed); }
  // Pages have come back since they did not suffice.
  bool was_fed(const RequestRing& ring) const {
    return starved() && ring.consumed.load(std::memory_order_seq_cst) != starved_at_;
  }
  void announce(const ChunkHeader& header) { pool_.begin(header.sequence, header.total); }
  // Where a piece on this socket goes to; to be cut.
  Scatter* begin(size_t socket, const ChunkHeader& header);
  // As Scatter::cut.
  bool cut(Scatter& scatter) { return scatter.cut(pool_); }
  // Of a trap: whether there are pages, now that others may have given some back; with a cut.
  void take_back(const RequestRing& ring) {
    pool_.take_back(ring.consumed.load(std::memory_order_acquire));
  }
  int parts(const Scatter& scatter, iovec (&parts)[Scatter::kCut + 1]) const {
    return scatter.parts(pool_, parts);
  }
  void copy(const Scatter& scatter, const uint8_t* from, uint64_t bytes);
  void arrived(Scatter& scatter, uint64_t bytes) { scatter.arrived(pool_, bytes); }
  // All bytes of a receive are there; false: the driver copies nothing, which a trap asks for.
  bool complete(uint64_t sequence);
  // The caller is about to be told; of a trap, only now may the descriptors be read.
  void before_done(uint64_t sequence);
  void spring_traps(uint64_t sequence, uint64_t bytes);

 private:
  bool counts_late() const { return trap_ != nullptr && trap_->counts_late(); }

  const size_t sockets_;
  const TrapState* const trap_;
  BouncePool pool_;
  std::unique_ptr<Scatter[]> scatters_;  // one a socket
  bool offered_ = false;
  uint64_t admitted_ = 0;             // receives that have their pages, or need none
  std::atomic<bool> starved_{false};  // the next one waits for pages
  uint64_t starved_at_ = 0;           // receives that were consumed when they did not suffice
};

}  // namespace softtcpx
