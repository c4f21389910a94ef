#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "reduce/choose.h"
#include "reduce/reduce.h"

namespace tcpx {

Arithmetic make_arithmetic(int type, int op, double factor) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  if (type < 0 || type >= kElementTypes) refuse("no type of elements " + std::to_string(type));
  if (op < 0 || op >= kReduceOps) refuse("no operation of a reduction " + std::to_string(op));
  const bool whole = factor == std::floor(factor) && std::abs(factor) <= 127;
  if (!std::isfinite(factor) || (op == kAvg && factor < 1) ||
      (is_integer(type) && op != kAvg && !whole)) {
    refuse("a factor of " + std::to_string(factor));
  }
  return {static_cast<ElementType>(type), static_cast<ReduceOp>(op), factor};
}

void reduce_reference(const Arithmetic& arithmetic, const uint8_t* a, const uint8_t* b,
                      uint8_t* out, size_t bytes) {
  with_type(arithmetic.type, [&](auto type) {
    with_meeting_op(arithmetic.op, [&](auto op) {
      using Stored = typename Element<type()>::Stored;
      for (size_t at = 0; at < bytes; at += sizeof(Stored)) {
        Stored x, y;
        memcpy(&x, a + at, sizeof(x));
        memcpy(&y, b + at, sizeof(y));
        const Stored result = reduced<type(), op()>(x, y);
        memcpy(out + at, &result, sizeof(result));
      }
    });
  });
}

void scale_reference(const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out, size_t bytes) {
  with_type(arithmetic.type, [&](auto type) {
    using Stored = typename Element<type()>::Stored;
    const auto factor = factor_as<type()>(arithmetic.factor);
    for (size_t at = 0; at < bytes; at += sizeof(Stored)) {
      Stored x;
      memcpy(&x, a + at, sizeof(x));
      x = arithmetic.op == kAvg ? scaled<type(), true>(x, factor)
                                : scaled<type(), false>(x, factor);
      memcpy(out + at, &x, sizeof(x));
    }
  });
}

}  // namespace tcpx
