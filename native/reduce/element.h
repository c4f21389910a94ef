// Elements of a reduction: twelve types, and what is computed of two elements of one. The same text
// for the CPU and for the GPU, bit by bit, so that both come to the same result; it needs no header
// of either. The numbers are those of tcpx_mpi/schedule/elements.py.
//
// Integers are computed modulo 2^w. Types narrower than float are computed in float and rounded to
// nearest even after each operation; f8e4m3, which has no infinity, becomes NaN if it rounds to
// more than 448. Of NaN and of the sign of a zero that min or max picks nothing is said.
#pragma once

#include "cuda/host_device.h"
#ifndef __CUDACC__
#include <cstring>
#endif

namespace tcpx {

enum ElementType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat16 = 9,
  kF8e4m3 = 10,
  kF8e5m2 = 11,
};
constexpr int kElementTypes = 12;

// kAvg and kMulsum are kSum where two elements meet: their factor is a step of its own.
enum ReduceOp : int { kSum = 0, kProd = 1, kMin = 2, kMax = 3, kAvg = 4, kMulsum = 5 };
constexpr int kReduceOps = 6;
constexpr int kMeetingOps = 4;  // kSum, kProd, kMin, kMax

// What all steps of a program compute with.
struct Arithmetic {
  ElementType type = kUint8;
  ReduceOp op = kSum;
  double factor = 1;  // of a step that scales: kAvg divides by it, all others multiply
};

TCPX_HOST_DEVICE constexpr unsigned element_bytes(int type) {
  return type == kInt8 || type == kUint8 || type == kF8e4m3 || type == kF8e5m2 ? 1
         : type == kHalf || type == kBfloat16                                  ? 2
         : type == kInt64 || type == kUint64 || type == kDouble                ? 8
                                                                               : 4;
}

// --- Floating point narrower than float
// -----------------------------------------------------------

TCPX_HOST_DEVICE unsigned bits_of(float x) {
#ifdef __CUDACC__
  return __float_as_uint(x);
#else
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
#endif
}

TCPX_HOST_DEVICE float float_of(unsigned bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  float x;
  memcpy(&x, &bits, 4);
  return x;
#endif
}

// Any element as 64 bits, whose upper ones are 0, and back.
typedef unsigned long long Bits64;

TCPX_HOST_DEVICE Bits64 bits_of_stored(float stored) { return bits_of(stored); }
TCPX_HOST_DEVICE Bits64 bits_of_stored(double stored) {
#ifdef __CUDACC__
  return static_cast<Bits64>(__double_as_longlong(stored));
#else
  Bits64 bits;
  memcpy(&bits, &stored, 8);
  return bits;
#endif
}
template <typename Stored>
TCPX_HOST_DEVICE Bits64 bits_of_stored(Stored stored) {
  return static_cast<Bits64>(stored) & (~0ull >> (64 - 8 * sizeof(Stored)));
}

template <typename Stored>
struct FromBits {
  static TCPX_HOST_DEVICE Stored of(Bits64 bits) { return static_cast<Stored>(bits); }
};
template <>
struct FromBits<float> {
  static TCPX_HOST_DEVICE float of(Bits64 bits) { return float_of(static_cast<unsigned>(bits)); }
};
template <>
struct FromBits<double> {
  static TCPX_HOST_DEVICE double of(Bits64 bits) {
#ifdef __CUDACC__
    return __longlong_as_double(static_cast<long long>(bits));
#else
    double x;
    memcpy(&x, &bits, 8);
    return x;
#endif
  }
};
template <typename Stored>
TCPX_HOST_DEVICE Stored stored_of_bits(Bits64 bits) {
  return FromBits<Stored>::of(bits);
}

// A sign, kExponent bits of exponent, kMantissa of mantissa. Without branches: a loop over it is
// made of vectors.
template <typename Bits, int kExponent, int kMantissa, bool kInfinity>
struct Narrow {
  using Stored = Bits;
  using Computed = float;
  using Factor = float;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr unsigned kMagnitude = (1u << (kExponent + kMantissa)) - 1;
  static constexpr unsigned kTop = kMagnitude >> kMantissa << kMantissa;  // the largest exponent
  static constexpr unsigned kLargest = kInfinity ? kTop - 1 : kMagnitude - 1;
  static constexpr unsigned kNan = kInfinity ? kTop | 1u << (kMantissa - 1) : kMagnitude;
  static constexpr unsigned kLeastNormal = static_cast<unsigned>(128 - kBias) << 23;

  static TCPX_HOST_DEVICE float widen(Stored stored) {
    const unsigned magnitude = stored & kMagnitude;
    const unsigned sign = static_cast<unsigned>(stored) >> (kExponent + kMantissa) << 31;
    const unsigned moved = magnitude << kShift;
    const unsigned normal = moved + (static_cast<unsigned>(127 - kBias) << 23);
    // The hidden bit that a subnormal lacks, added and taken away again.
    const unsigned subnormal = bits_of(float_of(moved + kLeastNormal) - float_of(kLeastNormal));
    const unsigned finite = magnitude >> kMantissa == 0 ? subnormal : normal;
    const unsigned odd = kInfinity ? 0x7f800000u | moved : 0x7fc00000u;
    return float_of(sign | (magnitude > kLargest ? odd : finite));
  }

  static TCPX_HOST_DEVICE Stored narrow(float x) {
    const unsigned bits = bits_of(x);
    const unsigned magnitude = bits & 0x7fffffffu;
    const unsigned even = magnitude >> kShift & 1;
    const unsigned rounded = magnitude + ((1u << (kShift - 1)) - 1 + even);
    const unsigned normal = (rounded - (static_cast<unsigned>(127 - kBias) << 23)) >> kShift;
    // The adder rounds where the last bit of a subnormal is.
    constexpr unsigned kMagic = static_cast<unsigned>(128 - kBias + kShift) << 23;
    const unsigned subnormal = bits_of(float_of(magnitude) + float_of(kMagic)) - kMagic;
    const unsigned finite = magnitude < kLeastNormal ? subnormal : normal;
    unsigned result = finite > kLargest ? kLargest + 1 : finite;  // infinity, or NaN
    if (kInfinity) result = magnitude > 0x7f800000u ? kNan : result;
    return static_cast<Stored>(result | bits >> 31 << (kExponent + kMantissa));
  }
};

struct Bfloat16 {
  using Stored = unsigned short;
  using Computed = float;
  using Factor = float;
  static TCPX_HOST_DEVICE float widen(Stored stored) {
    return float_of(static_cast<unsigned>(stored) << 16);
  }
  static TCPX_HOST_DEVICE Stored narrow(float x) {
    const unsigned bits = bits_of(x);
    const unsigned rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    const unsigned nan = bits >> 16 | 0x40u;
    return static_cast<Stored>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

// Factor: in what a factor is applied. The quotient of integers in floating point of twice their
// width, cut off, is that of integers, and is made of vectors.
template <typename Value, typename FactorOf = Value>
struct Plain {
  using Stored = Value;
  using Computed = Value;
  using Factor = FactorOf;
  static TCPX_HOST_DEVICE Value widen(Value value) { return value; }
  static TCPX_HOST_DEVICE Value narrow(Value value) { return value; }
};

// --- Types by number
// ------------------------------------------------------------------------------

template <int type>
struct Element;
template <>
struct Element<kInt8> : Plain<signed char, float> {
  using Wrapping = unsigned char;
};
template <>
struct Element<kUint8> : Plain<unsigned char, float> {
  using Wrapping = unsigned char;
};
template <>
struct Element<kInt32> : Plain<int, double> {
  using Wrapping = unsigned;
};
template <>
struct Element<kUint32> : Plain<unsigned, double> {
  using Wrapping = unsigned;
};
template <>
struct Element<kInt64> : Plain<long long> {
  using Wrapping = unsigned long long;
};
template <>
struct Element<kUint64> : Plain<unsigned long long> {
  using Wrapping = unsigned long long;
};
template <>
struct Element<kHalf> : Narrow<unsigned short, 5, 10, true> {};
template <>
struct Element<kFloat> : Plain<float> {};
template <>
struct Element<kDouble> : Plain<double> {};
template <>
struct Element<kBfloat16> : Bfloat16 {};
template <>
struct Element<kF8e4m3> : Narrow<unsigned char, 4, 3, false> {};
template <>
struct Element<kF8e5m2> : Narrow<unsigned char, 5, 2, true> {};

TCPX_HOST_DEVICE constexpr bool is_integer(int type) { return type <= kUint64; }
TCPX_HOST_DEVICE constexpr bool is_signed(int type) {
  return type != kUint8 && type != kUint32 && type != kUint64;
}

// --- What is computed
// -----------------------------------------------------------------------------

template <int type, int op>
TCPX_HOST_DEVICE typename Element<type>::Stored reduced(typename Element<type>::Stored a,
                                                        typename Element<type>::Stored b) {
  using E = Element<type>;
  if constexpr (op == kMin) return E::widen(b) < E::widen(a) ? b : a;
  if constexpr (op == kMax) return E::widen(a) < E::widen(b) ? b : a;
  if constexpr (is_integer(type)) {
    using W = typename E::Wrapping;
    const W x = static_cast<W>(a), y = static_cast<W>(b);
    return static_cast<typename E::Stored>(static_cast<W>(op == kProd ? x * y : x + y));
  } else {
    const auto x = E::widen(a), y = E::widen(b);
    return E::narrow(op == kProd ? x * y : x + y);
  }
}

// A factor in the type in which it is used.
template <int type>
TCPX_HOST_DEVICE typename Element<type>::Factor factor_as(double factor) {
  return static_cast<typename Element<type>::Factor>(factor);
}

template <int type, bool divides>
TCPX_HOST_DEVICE typename Element<type>::Stored scaled(typename Element<type>::Stored a,
                                                       typename Element<type>::Factor factor) {
  using E = Element<type>;
  if constexpr (is_integer(type) && divides) {
    return static_cast<typename E::Stored>(static_cast<typename E::Factor>(a) / factor);
  } else if constexpr (is_integer(type)) {
    using W = typename E::Wrapping;
    const W by = static_cast<W>(static_cast<long long>(factor));
    return static_cast<typename E::Stored>(static_cast<W>(static_cast<W>(a) * by));
  } else {
    return E::narrow(divides ? E::widen(a) / factor : E::widen(a) * factor);
  }
}

}  // namespace tcpx
