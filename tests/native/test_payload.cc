// What is sent, and how it is judged. tests/unit/transport/test_payload.py has the same function in
// Python.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "memory/buffer.h"
#include "memory/payload.h"

using namespace tcpx;

namespace {

std::vector<uint8_t> generated(size_t bytes, PayloadKey key, uint64_t offset) {
  std::vector<uint8_t> out(bytes);
  payload_generate(out.data(), bytes, key, offset);
  return out;
}

// The function once more, one byte at a time and without a vector in sight.
uint64_t plain_mix(uint64_t x) {
  for (int round = 0; round < 2; ++round) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
  }
  return x ^ (x >> 32);
}

uint8_t plain_byte(PayloadKey key, uint64_t offset) {
  const uint64_t word = offset / 4;
  const uint32_t stir = key.stir ^ static_cast<uint32_t>(plain_mix(word >> 32));
  uint32_t x = (static_cast<uint32_t>(word) + key.add) * 0x9e3779b1u;
  x = ((x ^ (x >> 15)) + stir) * 0x7feb352du;
  x ^= x >> 16;
  return static_cast<uint8_t>(x >> (8 * (offset % 4)));
}

// Generate, poison and verify at one place against the plain function, with borders watched.
void check_place(PayloadKey key, uint64_t offset, size_t bytes) {
  constexpr size_t kBorder = 70;
  std::vector<uint8_t> memory(bytes + 2 * kBorder, 0xEE);
  uint8_t* at = memory.data() + kBorder;
  size_t wrong = 0;
  payload_generate(at, bytes, key, offset);
  for (size_t i = 0; i < bytes; ++i) wrong += at[i] != plain_byte(key, offset + i);
  CHECK_EQ(wrong, 0u);
  CHECK_EQ(payload_verify(at, bytes, key, offset).wrong, 0u);
  payload_poison(at, bytes, key, offset);
  for (size_t i = 0; i < bytes; ++i) {
    wrong += at[i] != static_cast<uint8_t>(~plain_byte(key, offset + i));
  }
  CHECK_EQ(wrong, 0u);
  CHECK_EQ(payload_verify(at, bytes, key, offset).wrong, bytes);
  for (size_t i = 0; i < kBorder; ++i) {
    wrong += memory[i] != 0xEE;
    wrong += memory[memory.size() - 1 - i] != 0xEE;
  }
  CHECK_EQ(wrong, 0u);
}

const PayloadKey kKey = payload_key(1, 3, 7);

}  // namespace

TEST(golden_values_never_change) {
  const auto bytes = generated(24, payload_key(0, 0, 0), 0);
  const uint8_t first[24] = {0x07, 0xe1, 0xe8, 0xfb, 0xcc, 0x24, 0x99, 0x2e,
                             0xcc, 0x4e, 0x63, 0x4d, 0x09, 0x49, 0xe8, 0x9f,
                             0xc7, 0x32, 0x28, 0xf1, 0x7b, 0x70, 0xae, 0x68};
  CHECK(std::equal(bytes.begin(), bytes.end(), first));
  const auto later = generated(8, payload_key(42, 5, 1'000'000'007), 123'456'789);
  const uint8_t second[8] = {0x2b, 0xf2, 0xdf, 0x36, 0x71, 0xdf, 0x8b, 0xd7};
  CHECK(std::equal(later.begin(), later.end(), second));
  const auto far = generated(8, payload_key(42, 5, 1), (uint64_t{1} << 34) - 4);
  const uint8_t third[8] = {0xb8, 0x0d, 0x2e, 0x5f, 0xd5, 0x8e, 0xb3, 0x2a};
  CHECK(std::equal(far.begin(), far.end(), third));
}

TEST(every_offset_and_length_agrees_with_the_plain_function) {
  for (uint64_t offset = 0; offset <= 64; ++offset) {
    for (size_t bytes = 0; bytes <= 300; ++bytes) check_place(kKey, offset, bytes);
  }
}

TEST(blocks_of_the_check_end_where_they_should) {
  for (const uint64_t offset : {0, 1, 2, 3, 63, 4095, 4096, 4097}) {
    for (const size_t near : {4096, 8192, 12288}) {
      for (size_t bytes = near - 9; bytes <= near + 9; ++bytes) check_place(kKey, offset, bytes);
    }
  }
}

TEST(word_indices_beyond_32_bits_go_on_with_another_key) {
  for (const uint64_t border : {uint64_t{1} << 34, uint64_t{1} << 35, uint64_t{5} << 34}) {
    for (uint64_t back = 0; back <= 40; ++back) {
      for (size_t bytes : {1, 4, 30, 41, 64, 100}) check_place(kKey, border - back, bytes);
    }
    check_place(kKey, border - 5000, 10'000);
  }
  const auto low = generated(4096, kKey, 0);
  const auto high = generated(4096, kKey, uint64_t{1} << 34);
  CHECK_LT(std::inner_product(low.begin(), low.end(), high.begin(), 0, std::plus<int>(),
                              std::equal_to<uint8_t>()),
           64);
}

// Data of another iteration, rank, seed, or from another offset, at all sizes from 16 bytes.
TEST(other_data_is_detected_at_every_size_from_16_bytes) {
  std::mt19937_64 random(2024);
  uint64_t compared = 0, equal = 0;
  int missed = 0;
  const auto judge = [&](PayloadKey is, uint64_t is_at, PayloadKey should, uint64_t at,
                         size_t bytes) {
    const auto data = generated(bytes, is, is_at);
    const uint64_t wrong = payload_verify(data.data(), bytes, should, at).wrong;
    missed += wrong == 0;
    compared += bytes;
    equal += bytes - wrong;
  };
  for (int trial = 0; trial < 20'000; ++trial) {
    const uint64_t seed = random(), iteration = random() % 100'000, at = random() % (1 << 28);
    const uint32_t sender = random() % 16'384;
    const size_t bytes = 16 + random() % 48;
    const PayloadKey should = payload_key(seed, sender, iteration);
    const uint64_t ahead = 1 + random() % 32;
    judge(payload_key(seed, sender, iteration + ahead), at, should, at, bytes);
    judge(payload_key(seed, sender + 1 + random() % 64, iteration), at, should, at, bytes);
    judge(payload_key(seed + 1 + random() % 64, sender, iteration), at, should, at, bytes);
    judge(should, at + 1 + random() % 64, should, at, bytes);
    judge(should, at + (random() % 4096) * 4 + 4, should, at, bytes);
  }
  CHECK_EQ(missed, 0);
  // By chance one byte of 256 agrees: 4 million bytes, sigma 1/32,000.
  const double rate = double(equal) / double(compared);
  CHECK_LT(rate, 1.0 / 256 + 2e-4);
  CHECK_LT(1.0 / 256 - 2e-4, rate);
}

TEST(swapped_chunks_are_detected) {
  std::vector<uint8_t> data = generated(64 * 1024, kKey, 0);
  for (const size_t chunk : {16, 512, 4096}) {
    auto swapped = data;
    std::swap_ranges(swapped.begin(), swapped.begin() + chunk, swapped.begin() + 5 * chunk);
    const PayloadVerdict v = payload_verify(swapped.data(), swapped.size(), kKey, 0);
    CHECK_LT(2 * chunk - 2 * chunk / 16, v.wrong);
    CHECK_LE(v.wrong, 2 * chunk);
    CHECK_LT(v.first, chunk);
  }
}

TEST(exactly_the_wrong_bytes_are_counted_and_the_first_is_named) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 2000; ++trial) {
    const uint64_t offset = random() % 100;
    auto data = generated(1 + random() % 20'000, kKey, offset);
    std::vector<size_t> places;
    for (size_t n = random() % 5 + 1; n > 0; --n) places.push_back(random() % data.size());
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    const uint8_t right = data[places[0]];
    for (const size_t place : places) data[place] ^= 1 << random() % 8;
    const PayloadVerdict v = payload_verify(data.data(), data.size(), kKey, offset);
    CHECK_EQ(v.wrong, places.size());
    CHECK_EQ(v.first, places[0]);
    CHECK_EQ(v.expected, right);
    CHECK_EQ(v.found, data[places[0]]);
  }
}

TEST(every_bit_of_every_byte_counts) {
  auto data = generated(96, kKey, 3);
  for (size_t i = 0; i < data.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      data[i] ^= 1 << bit;
      CHECK_EQ(payload_verify(data.data(), data.size(), kKey, 3).wrong, 1u);
      data[i] ^= 1 << bit;
    }
  }
}

namespace {

// Three slots of a rank that receives 100 bytes of rank 2 and 57 of rank 5.
struct Received {
  Received() : memory(3 * 256, 0), slots{memory.data(), 256, 157, 64} {}
  void arrive(size_t slot, uint64_t iteration) {
    for (const PayloadSpan& s : spans) {
      payload_generate(memory.data() + slot * 256 + s.offset, s.bytes,
                       payload_key(9, s.sender, iteration), s.sender_offset);
    }
  }
  SlotVerdict verdict(uint64_t iteration) {
    return verify_slots(slots, 0, 3, iteration, 9, spans, 2);
  }
  std::vector<uint8_t> memory;
  Slots slots;
  PayloadSpan spans[2] = {{0, 100, 2, 1000}, {100, 57, 5, 31}};
};

}  // namespace

TEST(slots_that_arrived_are_right_and_poisoned_ones_wholly_wrong) {
  Received r;
  poison_slots(r.slots, 0, 3, 40, 9, r.spans, 2);
  SlotVerdict v = r.verdict(40);
  CHECK_EQ(v.wrong, 3u * 157);
  CHECK_EQ(v.guard_wrong, 0u);
  for (size_t k = 0; k < 3; ++k) r.arrive(k, 40 + k);
  v = r.verdict(40);
  CHECK_EQ(v.wrong, 0u);
  CHECK_EQ(v.guard_wrong, 0u);
  CHECK(!v.has_first);
}

TEST(a_stale_slot_is_found) {
  Received r;
  poison_slots(r.slots, 0, 3, 40, 9, r.spans, 2);
  for (size_t k = 0; k < 3; ++k) r.arrive(k, k == 1 ? 40 : 40 + k);  // what slot 0 got, again
  const SlotVerdict v = r.verdict(40);
  CHECK_LT(140u, v.wrong);
  CHECK(v.has_first);
  CHECK_EQ(v.slot, 1u);
  CHECK_EQ(v.sender, 2u);
}

TEST(a_write_behind_a_slot_is_found) {
  for (const size_t behind : {157, 158, 200, 220}) {
    Received r;
    poison_slots(r.slots, 0, 3, 40, 9, r.spans, 2);
    for (size_t k = 0; k < 3; ++k) r.arrive(k, 40 + k);
    r.memory[256 + behind] ^= 0xFF;
    const SlotVerdict v = r.verdict(40);
    CHECK_EQ(v.wrong, 0u);
    CHECK_EQ(v.guard_wrong, 1u);
    CHECK_EQ(v.slot, 1u);
    CHECK_EQ(v.offset, behind);
    CHECK_EQ(v.sender, UINT32_MAX);
  }
}

TEST(the_first_wrong_byte_of_a_slot_is_named_with_its_sender) {
  Received r;
  poison_slots(r.slots, 0, 3, 40, 9, r.spans, 2);
  for (size_t k = 0; k < 3; ++k) r.arrive(k, 40 + k);
  r.memory[2 * 256 + 130] ^= 4;
  const SlotVerdict v = r.verdict(40);
  CHECK_EQ(v.wrong, 1u);
  CHECK_EQ(v.slot, 2u);
  CHECK_EQ(v.offset, 130u);
  CHECK_EQ(v.sender, 5u);
  CHECK_EQ(v.expected, plain_byte(payload_key(9, 5, 42), 31 + 30));
  CHECK_EQ(v.found, v.expected ^ 4);
}

TEST(fill_writes_each_slot_for_its_iteration) {
  std::vector<uint8_t> memory(4 * 512, 0);
  const Slots slots{memory.data(), 512, 300, 64};
  const PayloadSpan whole{0, 300, 6, 0};
  fill_slots(slots, 1, 3, 70, 9, &whole, 1);
  CHECK_EQ(memory[0], 0);
  for (size_t k = 1; k < 4; ++k) {
    const PayloadKey key = payload_key(9, 6, 70 + k - 1);
    CHECK_EQ(payload_verify(memory.data() + k * 512, 300, key, 0).wrong, 0u);
  }
}

TEST(a_buffer_is_zeroed_and_on_a_page) {
  for (const size_t bytes : {0, 1, 4096, 100'001}) {
    const HostBuffer buffer(bytes);
    CHECK_EQ(buffer.bytes(), bytes);
    CHECK_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    CHECK(std::all_of(buffer.data(), buffer.data() + bytes, [](uint8_t b) { return b == 0; }));
  }
}

CHECK_MAIN()
