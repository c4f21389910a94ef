#include "memory/payload.h"

#include <algorithm>
#include <cstring>

#include "memory/payload_arguments.h"
#include "memory/payload_word.h"
#include "reduce/vector_width.h"

namespace tcpx {
namespace {

constexpr uint8_t kGuardByte = kGuardValue;
constexpr size_t kVerifyBlock = 4096;  // judged as a whole; looked into only when it differs

TCPX_INLINE_LOOP void generate_words_loop(uint8_t* out, size_t words, uint32_t index, uint32_t add,
                                          uint32_t stir, uint32_t flip) {
  for (size_t i = 0; i < words; ++i) {
    const uint32_t x = payload_word(index + static_cast<uint32_t>(i), add, stir) ^ flip;
    memcpy(out + 4 * i, &x, 4);
  }
}
TCPX_BY_WIDTH(void, generate_words,
              (uint8_t * out, size_t words, uint32_t index, uint32_t add, uint32_t stir,
               uint32_t flip),
              (out, words, index, add, stir, flip))

TCPX_INLINE_LOOP uint32_t differing_words_loop(const uint8_t* in, size_t words, uint32_t index,
                                               uint32_t add, uint32_t stir) {
  uint32_t difference = 0;
  for (size_t i = 0; i < words; ++i) {
    uint32_t x;
    memcpy(&x, in + 4 * i, 4);
    difference |= x ^ payload_word(index + static_cast<uint32_t>(i), add, stir);
  }
  return difference;
}
TCPX_BY_WIDTH(uint32_t, differing_words,
              (const uint8_t* in, size_t words, uint32_t index, uint32_t add, uint32_t stir),
              (in, words, index, add, stir))

uint8_t byte_at(PayloadKey key, uint64_t offset) {
  const uint64_t word = offset / 4;
  const uint32_t x =
      payload_word(static_cast<uint32_t>(word), key.add, payload_stir(key.stir, word));
  return static_cast<uint8_t>(x >> (8 * (offset % 4)));
}

// Calls bytes(begin, end) for ragged ends and words(begin, n_words, word_index, stir) for the rest,
// in order, cut where the word index passes 32 bits.
template <typename Bytes, typename Words>
void in_pieces(size_t bytes, PayloadKey key, uint64_t offset, Bytes&& ragged, Words&& full) {
  size_t at = std::min<size_t>(bytes, (4 - offset % 4) % 4);
  if (at > 0) ragged(size_t{0}, at);
  while (bytes - at >= 4) {
    const uint64_t word = (offset + at) / 4;
    const uint64_t until_wrap = (uint64_t{1} << 32) - (word & 0xffffffffu);
    const size_t words = static_cast<size_t>(std::min<uint64_t>((bytes - at) / 4, until_wrap));
    full(at, words, static_cast<uint32_t>(word), payload_stir(key.stir, word));
    at += 4 * words;
  }
  if (at < bytes) ragged(at, bytes);
}

void write(uint8_t* out, size_t bytes, PayloadKey key, uint64_t offset, uint32_t flip) {
  in_pieces(
      bytes, key, offset,
      [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
          out[i] = byte_at(key, offset + i) ^ static_cast<uint8_t>(flip);
        }
      },
      [&](size_t at, size_t words, uint32_t index, uint32_t stir) {
        generate_words(out + at, words, index, key.add, stir, flip);
      });
}

void judge_bytes(const uint8_t* in, size_t begin, size_t end, PayloadKey key, uint64_t offset,
                 PayloadVerdict* verdict) {
  for (size_t i = begin; i < end; ++i) {
    const uint8_t expected = byte_at(key, offset + i);
    if (in[i] == expected) continue;
    if (verdict->wrong++ == 0) {
      verdict->first = i;
      verdict->expected = expected;
      verdict->found = in[i];
    }
  }
}

}  // namespace

PayloadKey payload_key(uint64_t seed, uint32_t sender, uint64_t iteration) {
  const uint64_t key = payload_key_bits(seed, sender, iteration);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

void payload_generate(uint8_t* out, size_t bytes, PayloadKey key, uint64_t offset) {
  write(out, bytes, key, offset, 0);
}

void payload_poison(uint8_t* out, size_t bytes, PayloadKey key, uint64_t offset) {
  write(out, bytes, key, offset, 0xffffffffu);
}

PayloadVerdict payload_verify(const uint8_t* in, size_t bytes, PayloadKey key, uint64_t offset) {
  PayloadVerdict verdict;
  in_pieces(
      bytes, key, offset,
      [&](size_t begin, size_t end) { judge_bytes(in, begin, end, key, offset, &verdict); },
      [&](size_t at, size_t words, uint32_t index, uint32_t stir) {
        for (size_t w = 0; w < words; w += kVerifyBlock / 4) {
          const size_t n = std::min(words - w, kVerifyBlock / 4);
          const size_t begin = at + 4 * w;
          if (differing_words(in + begin, n, index + static_cast<uint32_t>(w), key.add, stir)) {
            judge_bytes(in, begin, begin + 4 * n, key, offset, &verdict);
          }
        }
      });
  return verdict;
}

void fill_slots(const Slots& slots, size_t first, size_t count, uint64_t iteration, uint64_t seed,
                const PayloadSpan* spans, size_t n_spans) {
  for (size_t k = 0; k < count; ++k) {
    uint8_t* slot = slots.base + (first + k) * slots.stride;
    for (size_t s = 0; s < n_spans; ++s) {
      payload_generate(slot + spans[s].offset, spans[s].bytes,
                       payload_key(seed, spans[s].sender, iteration + k), spans[s].sender_offset);
    }
  }
}

void poison_slots(const Slots& slots, size_t first, size_t count, uint64_t iteration, uint64_t seed,
                  const PayloadSpan* spans, size_t n_spans) {
  for (size_t k = 0; k < count; ++k) {
    uint8_t* slot = slots.base + (first + k) * slots.stride;
    for (size_t s = 0; s < n_spans; ++s) {
      payload_poison(slot + spans[s].offset, spans[s].bytes,
                     payload_key(seed, spans[s].sender, iteration + k), spans[s].sender_offset);
    }
    memset(slot + slots.used, kGuardByte, slots.guard);
  }
}

SlotVerdict verify_slots(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                         uint64_t seed, const PayloadSpan* spans, size_t n_spans) {
  SlotVerdict total;
  const auto note_first = [&](size_t slot, uint64_t offset, uint32_t sender, uint8_t expected,
                              uint8_t found) {
    if (total.has_first) return;
    total.has_first = true;
    total.slot = slot;
    total.offset = offset;
    total.sender = sender;
    total.expected = expected;
    total.found = found;
  };
  for (size_t k = 0; k < count; ++k) {
    const uint8_t* slot = slots.base + (first + k) * slots.stride;
    for (size_t s = 0; s < n_spans; ++s) {
      const PayloadSpan& span = spans[s];
      const PayloadVerdict v =
          payload_verify(slot + span.offset, span.bytes,
                         payload_key(seed, span.sender, iteration + k), span.sender_offset);
      if (v.wrong == 0) continue;
      total.wrong += v.wrong;
      note_first(first + k, span.offset + v.first, span.sender, v.expected, v.found);
    }
    for (size_t i = slots.used; i < slots.used + slots.guard; ++i) {
      if (slot[i] == kGuardByte) continue;
      ++total.guard_wrong;
      note_first(first + k, i, UINT32_MAX, kGuardByte, slot[i]);
    }
  }
  return total;
}

}  // namespace tcpx
