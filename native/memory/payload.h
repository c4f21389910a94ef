// What is sent, and how it is judged: every byte is a function of (seed, sender, iteration,
// offset).
//
// Word w (4 little-endian bytes at offset 4w of the sender's buffer) is a keyed mix of w; the key
// is 64 bits, hashed from (seed, sender, iteration). Data of another iteration, of another rank or
// from another offset agrees with what is expected in one byte of 256; 16 bytes of it agree with
// probability 2^-128, or 2^-64 if the two keys collide. Poison is the complement of what is
// expected, so that a byte that never arrived is wrong with certainty, at every size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx {

struct PayloadKey {
  uint32_t add;   // joins the word index
  uint32_t stir;  // joins half-way through the mix
};

PayloadKey payload_key(uint64_t seed, uint32_t sender, uint64_t iteration);

void payload_generate(uint8_t* out, size_t bytes, PayloadKey key, uint64_t offset);
void payload_poison(uint8_t* out, size_t bytes, PayloadKey key, uint64_t offset);

struct PayloadVerdict {
  uint64_t wrong = 0;  // bytes
  uint64_t first = 0;  // index of the first wrong byte, if any
  uint8_t expected = 0;
  uint8_t found = 0;
};

PayloadVerdict payload_verify(const uint8_t* in, size_t bytes, PayloadKey key, uint64_t offset);

// --- Slots: the unit that a batch poisons, fills and judges -------------------------------------

// A stretch of a slot and where its bytes come from.
struct PayloadSpan {
  uint64_t offset;  // in the slot
  uint64_t bytes;
  uint32_t sender;
  uint64_t sender_offset;  // in the sender's slot
};

// Slots of one buffer: slot k starts at base + k * stride, uses `used` bytes and is followed by
// guard bytes up to `stride`, which nobody may write.
struct Slots {
  uint8_t* base;
  size_t stride;
  size_t used;
  size_t guard;
};

struct SlotVerdict {
  uint64_t wrong = 0;        // payload bytes
  uint64_t guard_wrong = 0;  // bytes written behind a slot
  bool has_first = false;
  uint64_t slot = 0;
  uint64_t offset = 0;  // in the slot
  uint32_t sender = 0;
  uint8_t expected = 0;
  uint8_t found = 0;
};

// Slot k of [first, first + count) carries iteration `iteration + (k - first)`.
void fill_slots(const Slots& slots, size_t first, size_t count, uint64_t iteration, uint64_t seed,
                const PayloadSpan* spans, size_t n_spans);
void poison_slots(const Slots& slots, size_t first, size_t count, uint64_t iteration, uint64_t seed,
                  const PayloadSpan* spans, size_t n_spans);
SlotVerdict verify_slots(const Slots& slots, size_t first, size_t count, uint64_t iteration,
                         uint64_t seed, const PayloadSpan* spans, size_t n_spans);

}  // namespace tcpx
