// The one bounce buffer of a process on a GPU: addresses that all its receiving connections share.
//
// NCCL's kernels keep the address of the bounce buffer once a thread block, not once a connection:
// whichever connection is set up last wins, and offsets alone tell the others' pages apart. So each
// connection leases a stretch of one range, and all of them name the begin of the range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "net/abi_v7.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/gpu/cuda.h"
#include "softtcpx/gpu/pinned.h"

namespace softtcpx {

class BounceRange;

// Zeroed pages of a range, page-locked and mapped where it is a GPU's. Given back with it.
class BounceLease {
 public:
  BounceLease() = default;
  ~BounceLease();
  BounceLease(const BounceLease&) = delete;
  BounceLease& operator=(const BounceLease&) = delete;

  // Throws std::system_error when the range has no such stretch left, and CudaError.
  void take(BounceRange& range, const Gpu& gpu, size_t bytes);

  uint32_t offset() const { return offset_; }  // of its first byte in the range
  size_t bytes() const { return bytes_; }
  bool pinned() const { return static_cast<bool>(lock_); }
  // The same byte of the lease as the GPU sees it; without a GPU, as the CPU does.
  template <class T>
  T* as_seen_by_gpu(T* here) const {
    return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(here) + lock_.view_offset());
  }

 private:
  BounceRange* range_ = nullptr;  // outlives it
  PageLock lock_;
  uint32_t offset_ = 0;
  size_t bytes_ = 0;
};

// Of a trap: one set of pages that any connection of the range takes from, none set aside.
class SharedPages {
 public:
  SharedPages(BounceRange& range, const Gpu& gpu, uint32_t pages);

  const BounceLease& lease() const { return lease_; }
  bool take(uint16_t* page);  // false: none is free
  void give_back(uint16_t page);

 private:
  BounceLease lease_;
  std::mutex mutex_;
  std::vector<uint16_t> free_;
};

class BounceRange {
 public:
  // The range of this GPU, or of host memory when there is none; made for the first connection that
  // asks and gone with the last. Throws std::system_error and CudaError.
  static std::shared_ptr<BounceRange> of(const Gpu& gpu, const Settings& settings);
  ~BounceRange();
  BounceRange(const BounceRange&) = delete;
  BounceRange& operator=(const BounceRange&) = delete;

  uint8_t* host() const { return base_; }
  // What connections name as their bounce buffer; known from the first lease on.
  void* named() const;
  SharedPages* shared() const { return shared_.get(); }  // null without that trap

  // The range lies in the GPU's memory, too, which is what connections name.
  bool mirrored() const { return mirror_ != 0; }
  CudaAddress mirror() const { return mirror_; }
  // Of a trap: these bytes are copied there. False when the driver refuses.
  bool copy_to_gpu(uint32_t offset, uint32_t bytes) const;

 private:
  friend class BounceLease;

  BounceRange(const Gpu& gpu, const Settings& settings);
  void open_mirror();
  // The offset of so many free bytes, made accessible.
  uint32_t lease(size_t bytes);
  void give_back(uint32_t offset, size_t bytes);
  void note_view(ptrdiff_t view_offset);

  const Gpu gpu_;
  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  uint8_t* base_ = nullptr;  // in it, at a huge page
  size_t bytes_ = 0;
  CudaAddress mirror_memory_ = 0, mirror_ = 0;

  std::mutex mutex_;                     // of set-up and close: no byte that moves waits for it
  std::map<uint64_t, uint64_t> leased_;  // end by begin
  bool view_known_ = false;
  ptrdiff_t view_offset_ = 0;  // the same for every lease
  std::unique_ptr<SharedPages> shared_;
};

// Of a trap: a connection's device block in the GPU's memory, where TCPX has it and the CPU cannot
// follow its address.
class GpuBlock {
 public:
  // `block` in page-locked memory: its copy is over when the call returns. Throws CudaError.
  GpuBlock(const Gpu& gpu, const NetUnpackDevice& block);
  ~GpuBlock();
  GpuBlock(const GpuBlock&) = delete;
  GpuBlock& operator=(const GpuBlock&) = delete;

  NetUnpackDevice* address() const { return reinterpret_cast<NetUnpackDevice*>(memory_); }

 private:
  const Gpu gpu_;
  CudaAddress memory_ = 0;
};

}  // namespace softtcpx
