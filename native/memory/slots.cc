#include "memory/slots.h"

#include <stdexcept>

namespace tcpx {

void SlotMemory::cut(size_t used, size_t guard, size_t stride, size_t count) {
  if (used + guard > stride || stride * count > bytes()) {
    throw std::invalid_argument("slots do not fit the buffer");
  }
  slots_ = {data(), stride, used, guard};
  count_ = count;
}

void SlotMemory::check(size_t first, size_t count) const {
  if (first + count > count_) throw std::invalid_argument("no such slots");
}

void SlotMemory::fill(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                      const PayloadSpan* spans, size_t n_spans) {
  check(first, count);
  do_fill({first, count, iteration, seed, spans, n_spans});
}

void SlotMemory::poison(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                        const PayloadSpan* spans, size_t n_spans) {
  check(first, count);
  do_poison({first, count, iteration, seed, spans, n_spans});
}

SlotVerdict SlotMemory::verify(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                               const PayloadSpan* spans, size_t n_spans) {
  check(first, count);
  return do_verify({first, count, iteration, seed, spans, n_spans});
}

void SlotMemory::fill(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                      const PayloadSpan* spans, size_t n_spans, const ElementGroup& group) {
  check(first, count);
  check_spans(group, spans, n_spans, true);
  do_fill({first, count, iteration, seed, spans, n_spans}, group);
}

void SlotMemory::poison(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                        const PayloadSpan* spans, size_t n_spans, const ElementGroup& group) {
  check(first, count);
  check_spans(group, spans, n_spans, false);
  do_poison({first, count, iteration, seed, spans, n_spans}, group);
}

ElementVerdict SlotMemory::verify(size_t first, size_t count, uint64_t iteration, uint64_t seed,
                                  const PayloadSpan* spans, size_t n_spans,
                                  const ElementGroup& group) {
  check(first, count);
  check_spans(group, spans, n_spans, false);
  return do_verify({first, count, iteration, seed, spans, n_spans}, group);
}

void HostSlots::do_fill(const Batch& b) {
  fill_slots(slots_, b.first, b.count, b.iteration, b.seed, b.spans, b.n_spans);
}

void HostSlots::do_poison(const Batch& b) {
  poison_slots(slots_, b.first, b.count, b.iteration, b.seed, b.spans, b.n_spans);
}

SlotVerdict HostSlots::do_verify(const Batch& b) {
  return verify_slots(slots_, b.first, b.count, b.iteration, b.seed, b.spans, b.n_spans);
}

void HostSlots::do_fill(const Batch& b, const ElementGroup& group) {
  fill_elements(slots_, b.first, b.count, b.iteration, b.seed, b.spans, b.n_spans, group);
}

void HostSlots::do_poison(const Batch& b, const ElementGroup& group) {
  poison_elements(slots_, b.first, b.count, b.iteration, b.seed, b.spans, b.n_spans, group);
}

ElementVerdict HostSlots::do_verify(const Batch& b, const ElementGroup& group) {
  return verify_elements(slots_, b.first, b.count, b.iteration, b.seed, b.spans, b.n_spans, group);
}

}  // namespace tcpx
