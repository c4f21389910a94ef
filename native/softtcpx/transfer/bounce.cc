#include "softtcpx/transfer/bounce.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace softtcpx {
namespace {

// Two full pages and what is left of a 9 KiB segment.
constexpr uint32_t kSegment[] = {4096, 4096, 856};
constexpr uint8_t kPoison = 0xdb;
// Of the fragments that a receive may have, one in so many stays for the ends of its pieces.
constexpr uint64_t kSpareShare = 8;
// Pieces are as large as a chunk, or as large as a copy out of GPU memory, whose least is this.
constexpr uint64_t kSmallestPiece = 65536;
// With small fragments a receive may have so many times the pages.
constexpr uint64_t kSmallFragments = 4;
// Of a connection without a GPU: 128 of them have room in the bounce buffer, whatever the chunk.
constexpr uint32_t kMostHostPages = 8192;

template <class T>
constexpr size_t page_aligned() {
  return (sizeof(T) + kBouncePageBytes - 1) / kBouncePageBytes * kBouncePageBytes;
}
static_assert(kBouncePages < 65536, "pages are named by 16 bits");

}  // namespace

uint32_t pages_for(uint64_t bytes, const Settings& settings) {
  const uint64_t piece = std::clamp<uint64_t>(settings.chunk_bytes, 1, kSmallestPiece);
  const uint64_t small = settings.fragments == Fragments::kPages ? 1 : kSmallFragments;
  const uint64_t ends = bytes / piece + 2;
  return static_cast<uint32_t>(
      std::min<uint64_t>(kMaxFragments, small * (bytes / kBouncePageBytes + ends)));
}

BouncePool::BouncePool(const Settings& settings)
    : settings_(settings),
      random_state_(static_cast<uint64_t>(settings.seed) * 0x9e3779b97f4a7c15u + 1) {}

BouncePool::~BouncePool() {
  if (shared_ == nullptr || !filled()) return;
  for (uint64_t k = taken_back_; k < taken_back_ + kNetUnpackSlots; ++k) {
    for (uint32_t i = 0; i < slot(k).pages; ++i) shared_->give_back(pages_of(k)[i]);
  }
}

void BouncePool::open(const Gpu& gpu) {
  const auto asked = static_cast<uint32_t>(settings_.bounce_pages);
  // 16 receives of a chunk each, or one as large as it can be.
  const uint32_t needed = kNetUnpackSlots * pages_for(settings_.chunk_bytes, settings_);
  pages_ = asked > 0 ? asked : std::max(needed, kMaxFragments);
  // Addresses of host memory are all that they are: with large chunks fewer, so that many fit.
  if (!gpu && asked == 0) pages_ = std::min(pages_, kMostHostPages);
  range_ = BounceRange::of(gpu, settings_);
  bounce_ = range_->host();
  shared_ = range_->shared();
  if (shared_ != nullptr) pages_ = static_cast<uint32_t>(settings_.traps.shared_pages);
  const size_t own_pages = shared_ != nullptr ? 0 : pages_;
  lease_.take(*range_, gpu, page_aligned<Published>() + own_pages * kBouncePageBytes);
  first_ = shared_ != nullptr ? shared_->lease().offset()
                              : lease_.offset() + static_cast<uint32_t>(page_aligned<Published>());
  published_ = reinterpret_cast<Published*>(bounce_ + lease_.offset());
  published_->device = {lease_.as_seen_by_gpu(&published_->queue), range_->named(), ~uint64_t{0}};
  if (range_->mirrored() && settings_.traps.device_memory != 0)
    on_gpu_ = std::make_unique<GpuBlock>(gpu, published_->device);
}

void BouncePool::fill() {
  taken_.reset(new uint16_t[kBouncePages]);
  std::unique_ptr<uint16_t[]> pages(new uint16_t[pages_]);
  std::iota(&pages[0], &pages[0] + pages_, uint16_t{0});
  std::reverse(&pages[0], &pages[0] + pages_);
  const bool shuffled = settings_.shuffle != 0 && mirror() == 0;  // else neighbours go together
  for (uint32_t i = pages_ - 1; shuffled && i > 0; --i) std::swap(pages[i], pages[random(i + 1)]);
  unreserved_ = n_free_ = pages_;
  free_ = std::move(pages);
}

bool BouncePool::admit(uint64_t sequence, uint64_t capacity) {
  if (shared_ != nullptr) {
    slot(sequence).quota = kMaxFragments;
    return true;
  }
  const uint32_t quota = pages_for(capacity, settings_);
  if (quota > unreserved_) return false;
  unreserved_ -= quota;
  slot(sequence).quota = quota;
  return true;
}

uint32_t BouncePool::random(uint32_t below) {  // xorshift64*
  random_state_ ^= random_state_ >> 12;
  random_state_ ^= random_state_ << 25;
  random_state_ ^= random_state_ >> 27;
  return static_cast<uint32_t>(((random_state_ * 0x2545f4914f6cdd1du) >> 32) * below >> 32);
}

void BouncePool::begin(uint64_t sequence, uint64_t total) {
  Slot& slot = this->slot(sequence);
  slot.listed = 0;
  slot.uncut = total;
  published_->queue.cnt[sequence % kNetUnpackSlots] = 0;
}

BouncePool::Cut BouncePool::take(uint16_t* page) {
  if (__builtin_expect(shared_ != nullptr, false)) {
    if (!shared_->take(page)) return Cut::kNoPage;
  } else {
    if (n_free_ == 0) return Cut::kTooMany;  // a trap has lost one
    *page = free_[--n_free_];
  }
  ++out_;
  return Cut::kGood;
}

void BouncePool::give_back(uint16_t page) {
  if (__builtin_expect(shared_ != nullptr, false)) {
    shared_->give_back(page);
  } else {
    free_[n_free_++] = page;
  }
}

BouncePool::Cut BouncePool::cut(uint64_t sequence, uint32_t nth, uint64_t dst_off, uint64_t left,
                                Fragment* fragment) {
  Slot& slot = this->slot(sequence);
  if (slot.pages == slot.quota) return Cut::kTooMany;
  uint16_t page = 0;
  if (const Cut taken = take(&page); taken != Cut::kGood) return taken;
  // Small fragments only as long as large ones would suffice for the rest several times over.
  const uint64_t pages_left = slot.quota - slot.pages;
  const uint64_t spare = slot.quota / kSpareShare;
  const bool may_be_small = pages_left > 3 * slot.uncut / kBouncePageBytes + spare;
  uint32_t longest = kBouncePageBytes;
  if (may_be_small && settings_.fragments == Fragments::kSegments) longest = kSegment[nth % 3];
  if (may_be_small && settings_.fragments == Fragments::kRandom)
    longest = 1 + random(kBouncePageBytes);
  const uint32_t length = static_cast<uint32_t>(std::min<uint64_t>(longest, left));
  pages_of(sequence)[slot.pages++] = page;
  slot.uncut -= length;
  const uint32_t inside =
      settings_.fragments == Fragments::kRandom ? random(kBouncePageBytes - length + 1) : 0;
  *fragment = {offset_of(page) + inside, length, dst_off};
  return Cut::kGood;
}

void BouncePool::list(uint64_t sequence, const Fragment& fragment) {
  descriptors(sequence)[slot(sequence).listed++] = {fragment.src_off, fragment.len,
                                                    fragment.dst_off};
}

bool BouncePool::copy_to_gpu(uint64_t sequence) {
  if (on_gpu_ == nullptr) return true;
  const NetUnpackFragment* const all = descriptors(sequence);
  for (uint32_t i = 0; i < slot(sequence).listed; ++i) {
    if (!range_->copy_to_gpu(all[i].src_off, all[i].len)) return false;
  }
  return true;
}

void BouncePool::publish(uint64_t sequence) {
  __atomic_store_n(&published_->queue.cnt[sequence % kNetUnpackSlots], slot(sequence).listed,
                   __ATOMIC_RELEASE);
}

void BouncePool::take_back(uint64_t consumed) {
  for (; taken_back_ < consumed; ++taken_back_) {
    Slot& slot = this->slot(taken_back_);
    // Into host memory; and while only such are posted, the caller may be filling the pool.
    if (slot.quota == 0) continue;
    const uint16_t* pages = slot.pages > 0 ? pages_of(taken_back_) : nullptr;
    // The first one last: taken again in this order, neighbours stay neighbours.
    for (uint32_t i = slot.pages; i > 0; --i) give_back(pages[i - 1]);
    out_ -= slot.pages;
    unreserved_ += slot.quota;
    slot = Slot{};
  }
}

void BouncePool::poison(uint64_t sequence) const {
  if (settings_.poison == 0) return;
  for (uint32_t i = 0; i < slot(sequence).pages; ++i) {
    const uint32_t offset = offset_of(pages_of(sequence)[i]);
    std::memset(page_bytes(offset), kPoison, kBouncePageBytes);
    if (on_gpu_ != nullptr) range_->copy_to_gpu(offset, kBouncePageBytes);
  }
}

uint32_t BouncePool::leaked(uint64_t consumed, uint64_t seen, uint64_t posted) {
  if (!filled()) return 0;
  take_back(consumed);
  uint32_t missing = out_;
  for (uint64_t k = seen; k < posted; ++k) missing -= slot(k).pages;
  return missing;
}

void BouncePool::duplicate_last(uint64_t sequence) {
  Slot& slot = this->slot(sequence);
  NetUnpackFragment* all = descriptors(sequence);
  if (slot.listed == 0) return;
  all[slot.listed] = all[slot.listed - 1];
  ++slot.listed;
}

void BouncePool::lose_page(uint64_t sequence) {
  Slot& slot = this->slot(sequence);
  if (slot.pages > 0) --slot.pages;
}

bool Scatter::cut(BouncePool& pool) {
  if (first_ == end_) first_ = end_ = 0;
  while (uncut_ > 0 && end_ < kCut) {
    Fragment& fragment = fragments_[end_];
    const BouncePool::Cut cut = pool.cut(sequence_, nth_, next_, uncut_, &fragment);
    if (cut == BouncePool::Cut::kNoPage) return true;
    if (cut == BouncePool::Cut::kTooMany) return false;
    ++nth_;
    ++end_;
    next_ += fragment.len;
    uncut_ -= fragment.len;
    room_ += fragment.len;
  }
  return true;
}

int Scatter::parts(const BouncePool& pool, iovec (&parts)[kCut + 1]) const {
  int count = 0;
  uint32_t filled = filled_;
  for (int i = first_; i < end_; ++i) {
    uint8_t* const begin = pool.page_bytes(fragments_[i].src_off) + filled;
    const size_t length = fragments_[i].len - filled;
    iovec* const before = count > 0 ? &parts[count - 1] : nullptr;
    if (before != nullptr && static_cast<uint8_t*>(before->iov_base) + before->iov_len == begin) {
      before->iov_len += length;
    } else {
      parts[count++] = {begin, length};
    }
    filled = 0;
  }
  return count;
}

void Scatter::arrived(BouncePool& pool, uint64_t bytes) {
  room_ -= bytes;
  while (bytes > 0) {
    const Fragment& fragment = fragments_[first_];
    const auto taken = static_cast<uint32_t>(std::min<uint64_t>(bytes, fragment.len - filled_));
    filled_ += taken;
    bytes -= taken;
    if (filled_ < fragment.len) return;
    pool.list(sequence_, fragment);
    filled_ = 0;
    ++first_;
  }
}

}  // namespace softtcpx
