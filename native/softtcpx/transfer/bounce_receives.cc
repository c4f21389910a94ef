#include "softtcpx/transfer/bounce_receives.h"

#include <algorithm>
#include <cstring>

#include "softtcpx/environment/log.h"

namespace softtcpx {

NetUnpackDevice* BounceReceives::offer() {
  offered_ = true;
  return pool_.device();
}

bool BounceReceives::takes(uint64_t bytes) {
  if (bytes > 0 && !pool_.holds(bytes)) {
    SOFTTCPX_WARN(
        "a receive of %llu bytes needs more than the %u bounce pages of its connection; "
        "SOFTTCPX_BOUNCE_PAGES says how many there are",
        static_cast<unsigned long long>(bytes), pool_.pages());
    return false;
  }
  if (!pool_.filled()) {  // the first one of the connection
    scatters_.reset(new Scatter[sockets_]);
    pool_.fill();
  }
  return true;
}

uint32_t BounceReceives::leaked(const RequestRing& ring) {
  return pool_.leaked(ring.consumed.load(std::memory_order_relaxed), ring.seen,
                      ring.posted.load(std::memory_order_relaxed));
}

// Receives get their pages in order, all that they may need or none: then the oldest one that is
// without waits only for older ones, which have theirs and come to an end.
bool BounceReceives::admitted(uint64_t sequence, uint64_t posted, RequestRing& ring) {
  if (sequence < admitted_) return true;
  const uint64_t consumed = ring.consumed.load(std::memory_order_acquire);
  pool_.take_back(consumed);
  for (; admitted_ < posted; ++admitted_) {
    const Request& request = ring.slot(admitted_);
    if (request.scattered() && !pool_.admit(admitted_, request.capacity)) break;
  }
  const bool starved = sequence >= admitted_;
  if (starved) starved_at_ = consumed;
  if (starved != starved_.load(std::memory_order_relaxed))
    starved_.store(starved, std::memory_order_seq_cst);
  return !starved;
}

Scatter* BounceReceives::begin(size_t socket, const ChunkHeader& header) {
  Scatter& scatter = scatters_[socket];
  scatter.begin(header.sequence, header.offset, header.length);
  return &scatter;
}

void BounceReceives::copy(const Scatter& scatter, const uint8_t* from, uint64_t bytes) {
  iovec parts[Scatter::kCut + 1];
  scatter.parts(pool_, parts);
  for (const iovec* part = parts; bytes > 0; ++part) {
    const uint64_t take = std::min<uint64_t>(bytes, part->iov_len);
    std::memcpy(part->iov_base, from, take);
    from += take;
    bytes -= take;
  }
}

bool BounceReceives::complete(uint64_t sequence) {
  const bool copied = pool_.copy_to_gpu(sequence);
  if (!counts_late()) pool_.publish(sequence);
  return copied;
}

void BounceReceives::before_done(uint64_t sequence) {
  if (counts_late()) pool_.publish(sequence);
}

void BounceReceives::spring_traps(uint64_t sequence, uint64_t bytes) {
  const TrapState::Damage damage = trap_->damage(sequence);
  NetUnpackFragment* fragments = pool_.descriptors(sequence);
  if (damage.corrupt && bytes > 0) *pool_.page_bytes(fragments[0].src_off) ^= 0x01;
  if (damage.reorder) std::reverse(fragments, fragments + pool_.listed(sequence));
  if (damage.duplicate) pool_.duplicate_last(sequence);
  if (trap_->leaks(sequence)) pool_.lose_page(sequence);
}

}  // namespace softtcpx
