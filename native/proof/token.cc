#include "proof/token.h"

#include <sys/random.h>

#include <cstddef>

namespace tcpx {

bool same_token(const Token& a, const Token& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < sizeof a.bytes; ++i) difference |= a.bytes[i] ^ b.bytes[i];
  return difference == 0;
}

bool random_token(Token* token) {
  return ::getrandom(token->bytes, sizeof token->bytes, 0) ==
         static_cast<ssize_t>(sizeof token->bytes);
}

}  // namespace tcpx
