// The receive path for GPU memory: a connection's pages of the bounce buffer, which sockets are
// read into, and the queue that lists for each receive which pages hold which bytes.
//
// The owner of the connection takes pages, lists fragments, and takes back the pages of consumed
// receives; the caller reads both between done and consume. A page holds one fragment.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>

#include "net/abi_v7.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/gpu/bounce_range.h"

namespace softtcpx {

constexpr uint32_t kBouncePageBytes = 4096;

// Pages that a receive of so many bytes may need at most: full ones, and one for the end of each
// piece. Small fragments, for tests, need more.
uint32_t pages_for(uint64_t bytes, const Settings& settings);

// A stretch of a page that is to hold the bytes from dst_off on.
struct Fragment {
  uint32_t src_off;
  uint32_t len;
  uint64_t dst_off;
};

class BouncePool {
 public:
  explicit BouncePool(const Settings& settings);
  ~BouncePool();

  // Without a GPU pages are addresses only until one is written, which is all that a receiver of
  // host memory ever needs; with one all are page-locked. Throws CudaError, and std::system_error
  // when the bounce buffer has no room for them.
  void open(const Gpu& gpu);
  // Before the first receive into GPU memory is posted.
  void fill();
  bool filled() const { return free_ != nullptr; }

  // As the GPU sees it.
  NetUnpackDevice* device() const {
    return on_gpu_ != nullptr ? on_gpu_->address() : lease_.as_seen_by_gpu(&published_->device);
  }
  bool pinned() const { return lease_.pinned(); }
  size_t bytes() const { return lease_.bytes(); }
  uint32_t pages() const { return pages_; }
  // A receive that needs more of them could never be admitted.
  bool holds(uint64_t bytes) const {
    return shared_ != nullptr || pages_for(bytes, settings_) <= pages_;
  }
  uint8_t* page_bytes(uint32_t src_off) const { return bounce_ + src_off; }
  // Where the GPU has them in its own memory; 0: it reads them here.
  CudaAddress mirror() const { return on_gpu_ == nullptr ? range_->mirror() : 0; }
  uint64_t published(uint64_t sequence) const {
    return published_->queue.cnt[sequence % kNetUnpackSlots];
  }

  // The owner's part, for the receive with this number.
  // Sets as many pages aside as the receive may need; false while there are too few. In order: so
  // each receive that has its pages comes to an end whatever the others do.
  bool admit(uint64_t sequence, uint64_t capacity);
  void begin(uint64_t sequence, uint64_t total);
  // Cuts the next fragment of a piece with `left` bytes, the `nth` of that piece, and takes a page
  // for it.
  enum class Cut {
    kGood,
    kTooMany,  // the receive has as many as it may have
    kNoPage,   // of a trap: pages are not set aside, and none is free
  };
  Cut cut(uint64_t sequence, uint32_t nth, uint64_t dst_off, uint64_t left, Fragment* fragment);
  // Lists a fragment whose bytes have all arrived.
  void list(uint64_t sequence, const Fragment& fragment);
  // The receive is whole. Of a trap: its fragments go to where the GPU has its bounce buffer; false
  // when they do not.
  bool copy_to_gpu(uint64_t sequence);
  // Its descriptors may be read.
  void publish(uint64_t sequence);
  // Takes back the pages of all receives before `consumed`.
  void take_back(uint64_t consumed);

  // The caller's part: what is unpacked after this is seen to be wrong.
  void poison(uint64_t sequence) const;
  // When no owner is left: pages that are not back although nobody may need them any more.
  uint32_t leaked(uint64_t consumed, uint64_t seen, uint64_t posted);

  // For the traps, on a receive that is whole but not published.
  uint32_t listed(uint64_t sequence) const { return slot(sequence).listed; }
  NetUnpackFragment* descriptors(uint64_t sequence) const {
    return published_->queue.mem[sequence % kNetUnpackSlots];
  }
  void duplicate_last(uint64_t sequence);
  void lose_page(uint64_t sequence);

 private:
  struct Published {  // what the caller reads
    NetUnpackQueue queue;
    NetUnpackDevice device;
  };
  struct Slot {
    uint32_t quota = 0;   // pages set aside
    uint32_t pages = 0;   // of them taken
    uint32_t listed = 0;  // fragments with all bytes
    uint64_t uncut = 0;   // bytes that have no page yet
  };

  Slot& slot(uint64_t sequence) { return slots_[sequence % kNetUnpackSlots]; }
  const Slot& slot(uint64_t sequence) const { return slots_[sequence % kNetUnpackSlots]; }
  uint16_t* pages_of(uint64_t sequence) const {
    return &taken_[(sequence % kNetUnpackSlots) * kMaxFragments];
  }
  uint32_t random(uint32_t below);
  // Of the range, by the number that a page has here.
  uint32_t offset_of(uint16_t page) const { return first_ + page * kBouncePageBytes; }
  Cut take(uint16_t* page);
  void give_back(uint16_t page);

  const Settings& settings_;
  uint64_t random_state_;
  std::shared_ptr<BounceRange> range_;
  BounceLease lease_;  // what is published, then the pages
  Published* published_ = nullptr;
  SharedPages* shared_ = nullptr;      // of a trap: pages come from there, and none are leased
  uint8_t* bounce_ = nullptr;          // the begin of the range
  uint32_t first_ = 0;                 // where the pages begin in it
  std::unique_ptr<uint16_t[]> free_;   // a stack: the page that came back last goes out next
  std::unique_ptr<uint16_t[]> taken_;  // by slot
  uint32_t pages_ = 0;
  uint32_t unreserved_ = 0;
  uint32_t n_free_ = 0;
  uint32_t out_ = 0;                  // pages that are taken and not back
  uint64_t taken_back_ = 0;           // receives whose pages are back
  std::unique_ptr<GpuBlock> on_gpu_;  // none, but in tests
  std::array<Slot, kNetUnpackSlots> slots_;
};

// What one socket is being read into: the fragments of a piece that are cut and not full yet.
class Scatter {
 public:
  static constexpr int kCut = 128;  // half a MiB a system call

  void begin(uint64_t sequence, uint64_t dst_off, uint64_t length) {
    sequence_ = sequence;
    next_ = dst_off;
    uncut_ = length;
    nth_ = 0;
  }
  // Cuts as far as there is room; false when the receive may have no more fragments.
  bool cut(BouncePool& pool);
  // Where the next `room` bytes belong; neighbours in memory as one. Returns how many parts.
  int parts(const BouncePool& pool, iovec (&parts)[kCut + 1]) const;
  uint64_t room() const { return room_; }
  bool all_cut() const { return uncut_ == 0; }
  bool starved() const { return room_ == 0 && uncut_ > 0; }
  // The first `bytes` of `parts` have arrived.
  void arrived(BouncePool& pool, uint64_t bytes);

 private:
  uint64_t sequence_ = 0;
  uint64_t next_ = 0;  // dst_off of the next fragment
  uint64_t uncut_ = 0;
  uint64_t room_ = 0;
  uint32_t nth_ = 0;
  int first_ = 0, end_ = 0;
  uint32_t filled_ = 0;  // bytes of the first one
  std::array<Fragment, kCut> fragments_;
};

}  // namespace softtcpx
