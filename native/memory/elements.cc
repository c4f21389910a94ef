#include "memory/elements.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "memory/payload_arguments.h"
#include "reduce/choose.h"
#include "reduce/vector_width.h"

namespace tcpx {
namespace {

constexpr size_t kBlock = 1024;  // elements that are made at once
constexpr uint64_t kSpan32 = uint64_t{1} << 32;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

ElementRule checked(int type, int op, uint32_t ranks) {
  if (type < 0 || type >= kElementTypes) refuse("no type of elements " + std::to_string(type));
  if (op != kNoReduceOp && (op < 0 || op >= kReduceOps)) {
    refuse("no operation of a reduction " + std::to_string(op));
  }
  if (ranks < 1) refuse("a reduction of no ranks");
  return element_rule(type, op, ranks);
}

// --- Many elements of one rank: loops that are made of vectors
// ------------------------------------

TCPX_INLINE_LOOP void add_values_loop(const ElementRule& rule, ElementKey key, uint32_t index,
                                      uint64_t factor, uint64_t* sums, size_t n) {
  const ElementRule r = rule;
  for (size_t i = 0; i < n; ++i) {
    sums[i] += factor * active_value(r, key, index + static_cast<uint32_t>(i));
  }
}
TCPX_BY_WIDTH(void, add_values,
              (const ElementRule& rule, ElementKey key, uint32_t index, uint64_t factor,
               uint64_t* sums, size_t n),
              (rule, key, index, factor, sums, n))

// Of an operation that looks at what is there.
TCPX_INLINE_LOOP void fold_values_loop(const ElementRule& rule, ElementKey key, uint32_t index,
                                       uint64_t* sums, size_t n) {
  const ElementRule r = rule;
  for (size_t i = 0; i < n; ++i) {
    sums[i] = folded(r, sums[i], active_value(r, key, index + static_cast<uint32_t>(i)), 0);
  }
}
TCPX_BY_WIDTH(void, fold_values,
              (const ElementRule& rule, ElementKey key, uint32_t index, uint64_t* sums, size_t n),
              (rule, key, index, sums, n))

bool only_adds(const ElementRule& rule) {
  return rule.op == kSum || rule.op == kAvg || rule.op == kMulsum || rule.kind == kPowers;
}

// The results of a block whose indices do not pass 32 bits, before they are encoded.
void fold_block(const ElementRule& rule, const uint64_t* keys, uint64_t at, uint64_t* sums,
                size_t n) {
  const auto index = static_cast<uint32_t>(at);
  std::fill_n(sums, n, neutral_value(rule));
  if (rule.active == rule.ranks) {
    for (uint32_t rank = 0; rank < rule.ranks; ++rank) {
      const ElementKey key = element_key(keys[rank], at);
      if (only_adds(rule)) {
        add_values(rule, key, index, rule.op == kMulsum && rank % 2 ? 2 : 1, sums, n);
      } else {
        fold_values(rule, key, index, sums, n);
      }
    }
    return;
  }
  const ElementKey nobody = element_key(keys[rule.ranks], at);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t here = index + static_cast<uint32_t>(i);
    uint32_t rank = first_active(rule, nobody, here);
    for (uint32_t k = 0; k < rule.active; ++k) {
      sums[i] = folded(rule, sums[i], active_value(rule, element_key(keys[rank], at), here), rank);
      rank = rank + 1 == rule.ranks ? 0 : rank + 1;
    }
  }
}

void input_block(const ElementRule& rule, const uint64_t* keys, uint32_t rank, uint64_t at,
                 uint64_t* values, size_t n) {
  const auto index = static_cast<uint32_t>(at);
  const ElementKey key = element_key(keys[rank], at);
  std::fill_n(values, n, 0);
  add_values(rule, key, index, 1, values, n);
  if (rule.active == rule.ranks) return;
  const ElementKey nobody = element_key(keys[rule.ranks], at);
  const uint64_t neutral = neutral_value(rule);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t first = first_active(rule, nobody, index + static_cast<uint32_t>(i));
    if (!is_active(rule, rank, first)) values[i] = neutral;
  }
}

void encode_block(const ElementRule& rule, const uint64_t* values, bool finish, uint8_t* out,
                  size_t n) {
  with_type(static_cast<ElementType>(rule.type), [&](auto type) {
    using Stored = typename Element<type()>::Stored;
    for (size_t i = 0; i < n; ++i) {
      const Stored stored =
          finish ? finished_as<type()>(rule, values[i]) : encoded_as<type()>(rule, values[i]);
      memcpy(out + i * sizeof(Stored), &stored, sizeof(Stored));
    }
  });
}

// What a block of elements must be, as bytes.
struct Maker {
  const ElementGroup& group;
  std::vector<uint64_t> keys;
  uint64_t seed;
  uint64_t iteration;
  uint64_t values[kBlock] = {};

  Maker(const ElementGroup& of, uint64_t seed_, uint64_t iteration_)
      : group(of), keys(element_keys(of, seed_, iteration_)), seed(seed_), iteration(iteration_) {}

  void payload(uint32_t sender, uint64_t at, uint8_t* out, size_t n) const {
    payload_generate(out, n * group.bytes(), payload_key(seed, group.origin(sender), iteration),
                     at * group.bytes());
  }
  void input(uint32_t sender, uint64_t at, uint8_t* out, size_t n) {
    if (group.rule.kind == kAsPayload) return payload(sender, at, out, n);
    input_block(group.rule, keys.data(), sender, at, values, n);
    encode_block(group.rule, values, false, out, n);
  }
  void result(uint32_t sender, uint64_t at, uint8_t* out, size_t n) {
    if (group.rule.kind == kAsPayload) return payload(sender, at, out, n);
    fold_block(group.rule, keys.data(), at, values, n);
    encode_block(group.rule, values, true, out, n);
  }
};

// Calls use(slot, span, element of the slot's span, index, n) for blocks that do not pass 32 bits.
template <typename Use>
void over_blocks(const PayloadSpan& span, size_t size, Use&& use) {
  const uint64_t n = span.bytes / size;
  const uint64_t first = span.sender_offset / size;
  for (uint64_t i = 0; i < n;) {
    const uint64_t at = first + i;
    const auto block =
        static_cast<size_t>(std::min({uint64_t{kBlock}, n - i, kSpan32 - at % kSpan32}));
    use(span.offset + i * size, at, block);
    i += block;
  }
}

uint64_t bits_at(const uint8_t* at, size_t size) {
  uint64_t bits = 0;
  memcpy(&bits, at, size);
  return bits;
}

void judge_guard(const Slots& slots, size_t slot, ElementVerdict* total) {
  const uint8_t* bytes = slots.base + slot * slots.stride;
  for (size_t i = slots.used; i < slots.used + slots.guard; ++i) {
    if (bytes[i] == kGuardValue) continue;
    ++total->guard_wrong;
    if (total->has_first) continue;
    total->has_first = total->in_guard = true;
    total->slot = slot;
    total->offset = i;
    total->sender = kNoSender;
    total->found = bytes[i];
    total->expected = kGuardValue;
  }
}

}  // namespace

ElementGroup::ElementGroup(int type, int op, uint32_t ranks, std::vector<uint32_t> of)
    : rule(checked(type, op, ranks)), origins(std::move(of)) {
  if (!origins.empty() && origins.size() != ranks) {
    refuse(std::to_string(origins.size()) + " origins of " + std::to_string(ranks) + " ranks");
  }
}

std::vector<uint64_t> element_keys(const ElementGroup& group, uint64_t seed, uint64_t iteration) {
  std::vector<uint64_t> keys;
  for (uint32_t index = 0; index < group.rule.ranks; ++index) {
    keys.push_back(payload_key_bits(seed, group.origin(index), iteration));
  }
  keys.push_back(payload_key_bits(seed, kNobody, iteration));
  return keys;
}

uint64_t element_input(const ElementRule& rule, const uint64_t* keys, uint32_t index, uint64_t at) {
  const auto here = static_cast<uint32_t>(at);
  const uint32_t first = first_active(rule, element_key(keys[rule.ranks], at), here);
  const uint64_t value = is_active(rule, index, first)
                             ? active_value(rule, element_key(keys[index], at), here)
                             : neutral_value(rule);
  return element_bits(rule, value, false);
}

uint64_t element_result(const ElementRule& rule, const uint64_t* keys, uint64_t at) {
  const auto here = static_cast<uint32_t>(at);
  const uint32_t first = first_active(rule, element_key(keys[rule.ranks], at), here);
  uint64_t sum = neutral_value(rule);
  for (uint32_t rank = 0; rank < rule.ranks; ++rank) {
    if (!is_active(rule, rank, first)) continue;
    sum = folded(rule, sum, active_value(rule, element_key(keys[rank], at), here), rank);
  }
  return element_bits(rule, sum, true);
}

void check_spans(const ElementGroup& group, const PayloadSpan* spans, size_t n_spans,
                 bool senders) {
  const size_t size = group.bytes();
  for (size_t s = 0; s < n_spans; ++s) {
    const PayloadSpan& span = spans[s];
    if (span.offset % size != 0 || span.bytes % size != 0 || span.sender_offset % size != 0) {
      refuse("span " + std::to_string(s) + " is not made of elements of " + std::to_string(size) +
             " bytes");
    }
    if ((senders || group.rule.kind == kAsPayload) && span.sender >= group.rule.ranks) {
      refuse("span " + std::to_string(s) + ": no rank " + std::to_string(span.sender) + " of " +
             std::to_string(group.rule.ranks));
    }
  }
}

void fill_elements(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                   uint64_t seed, const PayloadSpan* spans, size_t n_spans,
                   const ElementGroup& group) {
  for (size_t k = 0; k < count; ++k) {
    uint8_t* slot = slots.base + (first + k) * slots.stride;
    Maker maker(group, seed, iteration + k);
    for (size_t s = 0; s < n_spans; ++s) {
      over_blocks(spans[s], group.bytes(), [&](uint64_t offset, uint64_t at, size_t n) {
        maker.input(spans[s].sender, at, slot + offset, n);
      });
    }
  }
}

void poison_elements(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                     uint64_t seed, const PayloadSpan* spans, size_t n_spans,
                     const ElementGroup& group) {
  for (size_t k = 0; k < count; ++k) {
    uint8_t* slot = slots.base + (first + k) * slots.stride;
    Maker maker(group, seed, iteration + k);
    for (size_t s = 0; s < n_spans; ++s) {
      over_blocks(spans[s], group.bytes(), [&](uint64_t offset, uint64_t at, size_t n) {
        maker.result(spans[s].sender, at, slot + offset, n);
        for (size_t i = 0; i < n * group.bytes(); ++i) slot[offset + i] ^= 0xff;
      });
    }
    memset(slot + slots.used, kGuardValue, slots.guard);
  }
}

ElementVerdict verify_elements(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                               uint64_t seed, const PayloadSpan* spans, size_t n_spans,
                               const ElementGroup& group) {
  const size_t size = group.bytes();
  ElementVerdict total;
  uint8_t expected[kBlock * 8];
  for (size_t k = 0; k < count; ++k) {
    const uint8_t* slot = slots.base + (first + k) * slots.stride;
    Maker maker(group, seed, iteration + k);
    for (size_t s = 0; s < n_spans; ++s) {
      over_blocks(spans[s], size, [&](uint64_t offset, uint64_t at, size_t n) {
        maker.result(spans[s].sender, at, expected, n);
        if (memcmp(slot + offset, expected, n * size) == 0) return;
        for (size_t i = 0; i < n; ++i) {
          if (memcmp(slot + offset + i * size, expected + i * size, size) == 0) continue;
          ++total.wrong;
          if (total.has_first) continue;
          total.has_first = true;
          total.slot = first + k;
          total.offset = offset + i * size;
          total.element = at + i;
          total.sender = group.rule.kind == kAsPayload ? spans[s].sender : kNoSender;
          total.found = bits_at(slot + total.offset, size);
          total.expected = bits_at(expected + i * size, size);
        }
      });
    }
    judge_guard(slots, first + k, &total);
  }
  return total;
}

}  // namespace tcpx
