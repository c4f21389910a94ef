#include "proof/blake2s.h"

#include <algorithm>
#include <cstring>

namespace tcpx {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are those of the hash");

constexpr size_t kBlockBytes = 64;
constexpr uint32_t kInitial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
// Which words of the block each round mixes in, in its order.
constexpr uint8_t kOrder[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

uint32_t rotated_right(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

// The chain of hashed blocks.
class Chain {
 public:
  Chain(size_t hash_size, size_t key_size) {
    std::copy(kInitial, kInitial + 8, state_);
    state_[0] ^= 0x01010000 ^ static_cast<uint32_t>(key_size << 8 | hash_size);
  }

  // `count` bytes (at most a block; less only in the last one, which is filled up with zeros).
  void add(const uint8_t* bytes, size_t count, bool last) {
    uint32_t block[16] = {};
    if (count > 0) std::memcpy(block, bytes, count);
    hashed_ += count;
    uint32_t v[16];
    std::copy(state_, state_ + 8, v);
    std::copy(kInitial, kInitial + 8, v + 8);
    v[12] ^= static_cast<uint32_t>(hashed_);
    v[13] ^= static_cast<uint32_t>(hashed_ >> 32);
    if (last) v[14] = ~v[14];
    for (const auto& order : kOrder) {
      for (int i = 0; i < 4; ++i)  // the columns, then the diagonals
        mix(v[i], v[4 + i], v[8 + i], v[12 + i], block[order[2 * i]], block[order[2 * i + 1]]);
      for (int i = 0; i < 4; ++i)
        mix(v[i], v[4 + (i + 1) % 4], v[8 + (i + 2) % 4], v[12 + (i + 3) % 4],
            block[order[8 + 2 * i]], block[order[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[8 + i];
  }

  const uint32_t* state() const { return state_; }

 private:
  static void mix(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t x, uint32_t y) {
    a += b + x;
    d = rotated_right(d ^ a, 16);
    c += d;
    b = rotated_right(b ^ c, 12);
    a += b + y;
    d = rotated_right(d ^ a, 8);
    c += d;
    b = rotated_right(b ^ c, 7);
  }

  uint32_t state_[8];
  uint64_t hashed_ = 0;
};

}  // namespace

void blake2s(uint8_t* hash, size_t size, const uint8_t* key, size_t key_size, const void* data,
             size_t count) {
  Chain chain(size, key_size);
  if (key_size > 0) {  // a block of its own
    uint8_t block[kBlockBytes] = {};
    std::memcpy(block, key, key_size);
    chain.add(block, sizeof block, count == 0);
  }
  const auto* at = static_cast<const uint8_t*>(data);
  for (; count > kBlockBytes; at += kBlockBytes, count -= kBlockBytes)
    chain.add(at, kBlockBytes, false);
  if (count > 0 || key_size == 0) chain.add(at, count, true);
  std::memcpy(hash, chain.state(), size);
}

}  // namespace tcpx
