// The messages of one direction with one remote, in the order that both sides agreed on.
//
// Jobs come in in that order; their messages are posted in order, as many as fit, staged ones as a
// bounce buffer is free, and end in order. Guarded by the engine's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "library/nixl/data_path.h"
#include "library/nixl/plan.h"
#include "library/nixl/regions.h"
#include "memory/buffer.h"

namespace tcpx::nixl {

// A stretch of a region, which may not be deregistered while one is there.
class RegionRange {
 public:
  RegionRange(std::shared_ptr<Region> region, uint64_t offset, uint64_t bytes)
      : region_(std::move(region)), offset_(offset), bytes_(bytes) {
    ++region_->users;
  }
  RegionRange(RegionRange&& from) noexcept = default;
  RegionRange& operator=(RegionRange&&) = delete;
  ~RegionRange() {
    if (region_) --region_->users;
  }
  const Region& region() const { return *region_; }
  uint8_t* data() const { return region_->data + offset_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Region> region_;
  uint64_t offset_;
  uint64_t bytes_;
};

// What a transfer frame asks for, on this side.
struct Job {
  std::vector<RegionRange> places;
  std::vector<Message> messages;
  std::function<void()> done;
  size_t posted = 0;
};

class Pump {
 public:
  Pump(DataPath& path, std::string remote, bool sends, uint64_t stage_bytes);
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  void add(std::shared_ptr<Job> job) { jobs_.push_back(std::move(job)); }
  // One round; true when anything moved.
  bool run();
  bool busy() const { return !jobs_.empty() || !posted_.empty(); }
  bool failed() const { return failed_; }
  bool uses(const Region& region) const;

 private:
  struct Posted {
    std::shared_ptr<Job> job;
    size_t message;
    uint64_t number;
    int slot;  // of the bounce buffers; -1: none
  };
  bool post_next();
  bool finish_oldest();
  uint8_t* slot_data(int slot) const { return bounce_->data() + slot * stage_bytes_; }

  DataPath& path_;
  const std::string remote_;
  const bool sends_;
  const uint64_t stage_bytes_;
  std::unique_ptr<HostBuffer> bounce_;  // made when first needed
  uint64_t bounce_memory_ = 0;
  std::vector<int> free_slots_;
  std::deque<std::shared_ptr<Job>> jobs_;  // with messages that are not posted
  std::deque<Posted> posted_;
  bool failed_ = false;
};

bool names(const std::vector<RegionRange>& places, const Region& region);

// One after another into a row of bytes, and back. Host memory only.
void gather(const std::vector<RegionRange>& places, size_t first, size_t count, uint8_t* to);
void scatter(const uint8_t* from, const std::vector<RegionRange>& places, size_t first,
             size_t count);

}  // namespace tcpx::nixl
