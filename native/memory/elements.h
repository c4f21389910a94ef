// Elements in memory of the host: what a rank puts in is written, what must come out is judged,
// element by element. What they are: memory/element_rule.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/element_rule.h"
#include "memory/payload.h"

namespace tcpx {

// Which elements a group of ranks reduces.
struct ElementGroup {
  // Throws std::invalid_argument for what no group can be. `origins` are the ranks of the run by
  // their index in the group; empty: the index itself.
  ElementGroup(int type, int op, uint32_t ranks, std::vector<uint32_t> origins = {});

  size_t bytes() const { return element_bytes(rule.type); }  // of an element
  uint32_t origin(uint32_t index) const { return origins.empty() ? index : origins[index]; }

  ElementRule rule;
  std::vector<uint32_t> origins;
};

// Of one iteration: the keys of all ranks of a group, and of nobody at the end.
std::vector<uint64_t> element_keys(const ElementGroup& group, uint64_t seed, uint64_t iteration);

// One element as it is specified, for a group that reduces: what rank `index` of the group puts in,
// and what must come out.
uint64_t element_input(const ElementRule& rule, const uint64_t* keys, uint32_t index, uint64_t at);
uint64_t element_result(const ElementRule& rule, const uint64_t* keys, uint64_t at);

struct ElementVerdict {
  uint64_t wrong = 0;        // elements
  uint64_t guard_wrong = 0;  // bytes written behind a slot
  bool has_first = false;
  uint64_t slot = 0;
  uint64_t offset = 0;   // in the slot, in bytes
  uint64_t element = 0;  // its index among those that were reduced, or of its sender
  uint32_t sender = 0;   // of a group that reduces nothing; kNoSender: of all
  bool in_guard = false;
  uint64_t found = 0;  // the bits of the element, or a byte of the guard
  uint64_t expected = 0;
};

constexpr uint32_t kNoSender = 0xffffffffu;

// As fill_slots, poison_slots and verify_slots, of spans that check_spans takes. `sender` of a span
// is an index in the group: of the rank that puts in what is filled; of a group that reduces, the
// others do not look at it.
void fill_elements(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                   uint64_t seed, const PayloadSpan* spans, size_t n_spans,
                   const ElementGroup& group);
void poison_elements(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                     uint64_t seed, const PayloadSpan* spans, size_t n_spans,
                     const ElementGroup& group);
ElementVerdict verify_elements(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                               uint64_t seed, const PayloadSpan* spans, size_t n_spans,
                               const ElementGroup& group);

// Throws std::invalid_argument for a span that is not made of whole elements, or whose sender is
// needed and not of the group.
void check_spans(const ElementGroup& group, const PayloadSpan* spans, size_t n_spans, bool senders);

}  // namespace tcpx
