#include "softtcpx/bounce.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace softtcpx {
namespace {

// Two full pages and what is left of a 9 KiB segment.
constexpr uint32_t kSegment[] = {4096, 4096, 856};
constexpr uint8_t kPoison = 0xdb;
// Of the fragments that a receive may have, so many stay for the ends of its pieces.
constexpr uint64_t kSpare = 256;

template <class T>
constexpr size_t whole_pages() {
  return (sizeof(T) + kBouncePageBytes - 1) / kBouncePageBytes * kBouncePageBytes;
}
constexpr size_t kBounceBytes = size_t{kBouncePages} * kBouncePageBytes;
static_assert(kBouncePages < 65536, "pages are named by 16 bits");

}  // namespace

BouncePool::BouncePool(const Settings& settings)
    : fragments_(settings.fragments),
      shuffle_(settings.shuffle != 0),
      poison_(settings.poison != 0),
      random_state_(static_cast<uint64_t>(settings.seed) * 0x9e3779b97f4a7c15u + 1) {}

BouncePool::~BouncePool() {
  if (mapping_ != nullptr) ::munmap(mapping_, whole_pages<Shared>() + kBounceBytes);
}

bool BouncePool::open() {
  // Costs addresses only: memory comes with the first touch of a page.
  void* memory = ::mmap(nullptr, whole_pages<Shared>() + kBounceBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  mapping_ = static_cast<uint8_t*>(memory);
  shared_ = reinterpret_cast<Shared*>(mapping_);
  bounce_ = mapping_ + whole_pages<Shared>();
  shared_->device = {&shared_->queue, bounce_, ~uint64_t{0}};
  return true;
}

void BouncePool::fill() {
  taken_.reset(new uint16_t[kBouncePages]);
  std::unique_ptr<uint16_t[]> pages(new uint16_t[kBouncePages]);
  std::iota(&pages[0], &pages[0] + kBouncePages, uint16_t{0});
  std::reverse(&pages[0], &pages[0] + kBouncePages);
  for (uint32_t i = kBouncePages - 1; shuffle_ && i > 0; --i)
    std::swap(pages[i], pages[random(i + 1)]);
  n_free_ = kBouncePages;
  free_ = std::move(pages);
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
  shared_->queue.cnt[sequence % kNetUnpackSlots] = 0;
}

bool BouncePool::cut(uint64_t sequence, uint32_t nth, uint64_t dst_off, uint64_t left,
                     Fragment* fragment) {
  Slot& slot = this->slot(sequence);
  if (slot.pages == kMaxFragments) return false;
  // Small fragments only as long as large ones would suffice for the rest several times over.
  const uint64_t pages_left = kMaxFragments - slot.pages;
  const bool may_be_small = pages_left * kBouncePageBytes > 3 * slot.uncut + kSpare * 4096;
  uint32_t longest = kBouncePageBytes;
  if (may_be_small && fragments_ == Fragments::kSegments) longest = kSegment[nth % 3];
  if (may_be_small && fragments_ == Fragments::kRandom) longest = 1 + random(kBouncePageBytes);
  const uint32_t length = static_cast<uint32_t>(std::min<uint64_t>(longest, left));
  const uint16_t page = free_[--n_free_];
  pages_of(sequence)[slot.pages++] = page;
  slot.uncut -= length;
  const uint32_t inside =
      fragments_ == Fragments::kRandom ? random(kBouncePageBytes - length + 1) : 0;
  *fragment = {page * kBouncePageBytes + inside, length, dst_off};
  return true;
}

void BouncePool::list(uint64_t sequence, const Fragment& fragment) {
  descriptors(sequence)[slot(sequence).listed++] = {fragment.src_off, fragment.len,
                                                    fragment.dst_off};
}

void BouncePool::publish(uint64_t sequence) {
  __atomic_store_n(&shared_->queue.cnt[sequence % kNetUnpackSlots], slot(sequence).listed,
                   __ATOMIC_RELEASE);
}

void BouncePool::take_back(uint64_t consumed) {
  for (; taken_back_ < consumed; ++taken_back_) {
    Slot& slot = this->slot(taken_back_);
    const uint16_t* pages = slot.pages > 0 ? pages_of(taken_back_) : nullptr;
    for (uint32_t i = 0; i < slot.pages; ++i) free_[n_free_++] = pages[i];
    slot = Slot{};
  }
}

void BouncePool::poison(uint64_t sequence) const {
  if (!poison_) return;
  for (uint32_t i = 0; i < slot(sequence).pages; ++i)
    std::memset(page_bytes(pages_of(sequence)[i] * kBouncePageBytes), kPoison, kBouncePageBytes);
}

uint32_t BouncePool::leaked(uint64_t consumed, uint64_t seen, uint64_t posted) {
  if (!filled()) return 0;
  take_back(consumed);
  uint32_t here = n_free_;
  for (uint64_t k = seen; k < posted; ++k) here += slot(k).pages;
  return kBouncePages - here;
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
    if (!pool.cut(sequence_, nth_, next_, uncut_, &fragment)) return false;
    parts_[end_] = {pool.page_bytes(fragment.src_off), fragment.len};
    ++nth_;
    ++end_;
    next_ += fragment.len;
    uncut_ -= fragment.len;
    room_ += fragment.len;
  }
  return true;
}

void Scatter::arrived(BouncePool& pool, uint64_t bytes) {
  room_ -= bytes;
  while (bytes > 0) {
    iovec& part = parts_[first_];
    const uint64_t taken = std::min<uint64_t>(bytes, part.iov_len);
    part.iov_base = static_cast<uint8_t*>(part.iov_base) + taken;
    part.iov_len -= taken;
    bytes -= taken;
    if (part.iov_len > 0) return;
    pool.list(sequence_, fragments_[first_++]);
  }
}

}  // namespace softtcpx
