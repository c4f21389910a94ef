// 128 bits: random ones, or what proves that somebody has them.
#pragma once

#include <cstdint>

namespace tcpx {

struct Token {
  uint8_t bytes[16];
};

// In constant time, so that a stranger cannot guess a proof byte by byte.
bool same_token(const Token& a, const Token& b);
// From the kernel; false when it has none to give.
bool random_token(Token* token);

}  // namespace tcpx
