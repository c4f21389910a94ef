// The mix that every payload is made of; the same text for the CPU and for the GPU.
#pragma once

#include "cuda/host_device.h"

namespace tcpx {

TCPX_HOST_DEVICE unsigned long long mix64(unsigned long long x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

// Word `index` of a payload, from the two halves of its key.
TCPX_HOST_DEVICE unsigned payload_word(unsigned index, unsigned add, unsigned stir) {
  unsigned x = index + add;
  x *= 0x9e3779b1u;
  x ^= x >> 15;
  x = (x + stir) * 0x7feb352du;
  return x ^ (x >> 16);
}

// Word indices beyond 32 bits (16 GiB) change the key, so that the mix stays 32 bits wide.
TCPX_HOST_DEVICE unsigned payload_stir(unsigned stir, unsigned long long word) {
  return stir ^ static_cast<unsigned>(mix64(word >> 32));
}

// The 64 bits of a key: the low half is added to the index, the high half stirs.
TCPX_HOST_DEVICE unsigned long long payload_key_bits(unsigned long long seed, unsigned sender,
                                                     unsigned long long iteration) {
  return mix64(mix64(mix64(seed) + sender + 1) + iteration + 1);
}

}  // namespace tcpx
