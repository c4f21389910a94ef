// Elements for tests of reductions: bits of every kind but NaN, and all that is computed of them.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "reduce/choose.h"
#include "reduce/reduce.h"

namespace tcpx {

constexpr const char* kTypeNames[kElementTypes] = {"int8",   "uint8",    "int32",  "uint32",
                                                   "int64",  "uint64",   "half",   "float",
                                                   "double", "bfloat16", "f8e4m3", "f8e5m2"};

inline bool is_nan(ElementType type, const uint8_t* at) {
  bool nan = false;
  with_type(type, [&](auto number) {
    using E = Element<number()>;
    typename E::Stored stored;
    memcpy(&stored, at, sizeof(stored));
    const auto value = E::widen(stored);
    nan = value != value;
  });
  return nan;
}

inline bool is_finite(ElementType type, const uint8_t* at) {
  bool finite = false;
  with_type(type, [&](auto number) {
    using E = Element<number()>;
    typename E::Stored stored;
    memcpy(&stored, at, sizeof(stored));
    const auto value = E::widen(stored);
    finite = value - value == 0;
  });
  return finite;
}

// `bytes` of elements, all kinds of bits: subnormals, infinities, both zeros, and no NaN.
inline std::vector<uint8_t> random_elements(ElementType type, size_t bytes, std::mt19937& random) {
  std::vector<uint8_t> all(bytes);
  const size_t size = element_bytes(type);
  for (size_t at = 0; at < bytes; at += size) {
    do {
      for (size_t k = 0; k < size; ++k) all[at + k] = static_cast<uint8_t>(random());
    } while (is_nan(type, &all[at]));
  }
  return all;
}

// The first element that differs, in words; "" for none. Two NaN are equal.
inline std::string element_difference(ElementType type, const std::vector<uint8_t>& found,
                                      const std::vector<uint8_t>& expected) {
  const size_t size = element_bytes(type);
  for (size_t at = 0; at < expected.size(); at += size) {
    if (memcmp(&found[at], &expected[at], size) == 0) continue;
    if (is_nan(type, &found[at]) && is_nan(type, &expected[at])) continue;
    return std::string(kTypeNames[type]) + " " + std::to_string(at / size);
  }
  return "";
}

template <typename Use>
void each_arithmetic(Use&& use) {
  for (int type = 0; type < kElementTypes; ++type) {
    for (int op = 0; op < kReduceOps; ++op) {
      use(make_arithmetic(type, op, op == kAvg ? 5 : op == kMulsum ? 2 : 1));
    }
  }
}

}  // namespace tcpx
