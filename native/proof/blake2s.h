// BLAKE2s (RFC 7693), a hash that takes a key: what the two sides of a handshake prove a secret
// with, of softtcpx's and of the NIXL backend's.
//
// With a key, BLAKE2s is a MAC as it stands: one page of shifts and sums. SipHash's 128-bit form
// has seen less study, and HMAC is a second construction on top of a hash. Python's hashlib has
// another BLAKE2s to test this one against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx {

// The `size` (1..32) bytes of the hash of `count` bytes of `data`, under a key of `key_size`
// (0..32) bytes.
void blake2s(uint8_t* hash, size_t size, const uint8_t* key, size_t key_size, const void* data,
             size_t count);

}  // namespace tcpx
