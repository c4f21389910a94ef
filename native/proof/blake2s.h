// BLAKE2s (RFC 7693), a hash that takes a key: what the two sides of a handshake prove a secret
// with, of softtcpx's and of the NIXL backend's.
//
// Chosen over SipHash, whose 128-bit form has seen less study, and over HMAC, which is a second
// construction on top of a hash: with a key BLAKE2s is a MAC as it stands, one page of shifts and
// sums, and Python's hashlib has another of it for our tests to disagree with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx {

// The `size` (1..32) bytes of the hash of `count` bytes of `data`, under a key of `key_size`
// (0..32) bytes.
void blake2s(uint8_t* hash, size_t size, const uint8_t* key, size_t key_size, const void* data,
             size_t count);

}  // namespace tcpx
