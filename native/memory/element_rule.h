// Elements that ranks reduce: what each rank puts in, and what must come out, as functions of
// (seed, rank, iteration, index). The same text for the CPU and for the GPU.
//
// Any order of a reduction gives the same bits, because no step of it rounds:
//
//   integers, all but avg   random bits (prod: odd ones); 2^w divides what is lost
//   sum, mulsum, avg        whole numbers from 1 to `most`, both signs where the type has two;
//                           active * most * factor is at most 16 (f8e4m3), 8 (f8e5m2), 256
//                           (bfloat16), 2048 (half), 2^24 (float), 2^30 (double), 127, 255 (avg of
//                           int8, uint8), 2^30 (of wider integers)
//   prod                    1, -1, 2, -2; at most 8 (f8e4m3), 15 (half, f8e5m2), 60 of them a 2
//   min, max                whole numbers up to the same bounds, never 0
//   none                    the bytes of payload.h
//
// At most 64 ranks are active in an element, fewer where the bound is: `active` ranks from one on
// that a hash of the index picks. The others put in what changes nothing: 0, 1, or the largest or
// the least number. So a check costs the same however many ranks there are.
#pragma once

#include "memory/payload_word.h"
#include "reduce/element.h"

namespace tcpx {

constexpr int kNoReduceOp = -1;  // bytes are only moved
constexpr unsigned kMostActive = 64;
constexpr unsigned kNobody = 0xfffffffeu;  // whose key picks the active ranks

enum ElementKind : int { kAsPayload, kWrapping, kCounting, kPowers, kPicking };

struct ElementRule {
  int type;
  int op;  // ReduceOp or kNoReduceOp
  int kind;
  unsigned ranks;
  unsigned active;
  unsigned most;
};

// The largest whole number such that it and all below are exact, or that is large enough.
TCPX_HOST_DEVICE constexpr unsigned exact_bound(int type) {
  return type == kF8e5m2     ? 8
         : type == kF8e4m3   ? 16
         : type == kBfloat16 ? 256
         : type == kHalf     ? 2048
         : type == kFloat    ? 1u << 24
         : type == kInt8     ? 127
         : type == kUint8    ? 255
                             : 1u << 30;
}

TCPX_HOST_DEVICE constexpr unsigned least_of(unsigned a, unsigned b) { return a < b ? a : b; }

TCPX_HOST_DEVICE constexpr ElementRule element_rule(int type, int op, unsigned ranks) {
  const unsigned active = least_of(ranks, kMostActive);
  const unsigned bound = exact_bound(type);
  if (op == kNoReduceOp) return {type, op, kAsPayload, ranks, 1, 0};
  if (is_integer(type) && op != kAvg) return {type, op, kWrapping, ranks, active, 0};
  if (op == kMin || op == kMax) return {type, op, kPicking, ranks, active, bound};
  if (op == kProd) {
    const unsigned twos = type == kF8e4m3 ? 8 : type == kHalf || type == kF8e5m2 ? 15 : 60;
    return {type, op, kPowers, ranks, least_of(active, twos), 0};
  }
  const unsigned factor = op == kMulsum ? 2 : 1;
  const unsigned some = least_of(active, bound / factor);
  return {type, op, kCounting, ranks, some, bound / factor / some};
}

// --- One element
// ----------------------------------------------------------------------------------

// A key with the part of the index that is beyond 32 bits.
struct ElementKey {
  unsigned add, stir;
};

TCPX_HOST_DEVICE ElementKey element_key(Bits64 key, Bits64 index) {
  const unsigned stir = static_cast<unsigned>(key >> 32);
  return {static_cast<unsigned>(key), index >> 32 == 0 ? stir : payload_stir(stir, index)};
}

TCPX_HOST_DEVICE unsigned element_hash(ElementKey key, unsigned index) {
  return payload_word(index, key.add, key.stir);
}

// What an active rank puts in, as 64 bits: of kPowers the exponent, and 2^32 for a minus.
TCPX_HOST_DEVICE Bits64 active_value(const ElementRule& rule, ElementKey key, unsigned index) {
  const unsigned hash = element_hash(key, index);
  if (rule.kind == kWrapping) {
    // Some types have no use for the upper half, and it costs little.
    const Bits64 bits = hash | static_cast<Bits64>(payload_word(index, key.stir, key.add)) << 32;
    return rule.op == kProd ? bits | 1 : bits;
  }
  if (rule.kind == kPowers) return (hash >> 1 & 1) | static_cast<Bits64>(hash & 1) << 32;
  const Bits64 magnitude = 1 + (static_cast<Bits64>(hash) * rule.most >> 32);
  return is_signed(rule.type) && (hash & 1) ? 0 - magnitude : magnitude;
}

// Cut to the type's width, as a number of 64 bits whose order is the type's.
TCPX_HOST_DEVICE long long as_number(int type, Bits64 bits) {
  switch (type) {
    case kInt8:
      return static_cast<signed char>(bits);
    case kUint8:
      return static_cast<unsigned char>(bits);
    case kInt32:
      return static_cast<int>(bits);
    case kUint32:
      return static_cast<unsigned>(bits);
    case kUint64:
      return static_cast<long long>(bits ^ 1ull << 63);
    default:
      return static_cast<long long>(bits);
  }
}

// What a reduction of nobody would give; also what those put in who are not active.
TCPX_HOST_DEVICE Bits64 neutral_value(const ElementRule& rule) {
  const bool least = rule.op == kMax;  // the least number
  if (rule.kind == kPicking) return least ? 0 - static_cast<Bits64>(rule.most) : rule.most;
  if (rule.op != kMin && rule.op != kMax) return rule.op == kProd && rule.kind == kWrapping;
  const unsigned width = 8 * element_bytes(rule.type);
  const Bits64 top = 1ull << (width - 1);
  const Bits64 all = top | (top - 1);
  if (is_signed(rule.type)) return least ? 0 - top : top - 1;
  return least ? 0 : all;
}

// Where the active ranks begin.
TCPX_HOST_DEVICE unsigned first_active(const ElementRule& rule, ElementKey nobody, unsigned index) {
  return static_cast<unsigned>(static_cast<Bits64>(element_hash(nobody, index)) * rule.ranks >> 32);
}

TCPX_HOST_DEVICE bool is_active(const ElementRule& rule, unsigned rank, unsigned first) {
  return (rank >= first ? rank - first : rank + (rule.ranks - first)) < rule.active;
}

TCPX_HOST_DEVICE Bits64 folded(const ElementRule& rule, Bits64 sum, Bits64 value, unsigned rank) {
  switch (rule.op) {
    case kProd:
      return rule.kind == kWrapping ? sum * value : sum + value;
    case kMin:
      return as_number(rule.type, value) < as_number(rule.type, sum) ? value : sum;
    case kMax:
      return as_number(rule.type, sum) < as_number(rule.type, value) ? value : sum;
    case kMulsum:
      return sum + (rank % 2 ? 2 * value : value);
    default:
      return sum + value;
  }
}

template <int type>
TCPX_HOST_DEVICE typename Element<type>::Stored encoded_as(const ElementRule& rule, Bits64 value) {
  using E = Element<type>;
  if constexpr (is_integer(type)) {
    return static_cast<typename E::Stored>(value);
  } else if (rule.kind == kPowers) {
    const auto power = static_cast<typename E::Computed>(1ull << (value & 63));
    return E::narrow(value >> 32 & 1 ? -power : power);
  } else {
    return E::narrow(static_cast<typename E::Computed>(static_cast<long long>(value)));
  }
}

// What comes out of a fold: `value` in the type, divided for an average.
template <int type>
TCPX_HOST_DEVICE typename Element<type>::Stored finished_as(const ElementRule& rule, Bits64 value) {
  const auto stored = encoded_as<type>(rule, value);
  if (rule.op != kAvg) return stored;
  return scaled<type, true>(stored, factor_as<type>(rule.ranks));
}

template <int type>
TCPX_HOST_DEVICE Bits64 element_bits_as(const ElementRule& rule, Bits64 value, bool finish) {
  return bits_of_stored(finish ? finished_as<type>(rule, value) : encoded_as<type>(rule, value));
}

// The bits of an element: what a rank puts in, or what comes out of a fold.
TCPX_HOST_DEVICE Bits64 element_bits(const ElementRule& rule, Bits64 value, bool finish) {
  switch (rule.type) {
    case kInt8:
      return element_bits_as<kInt8>(rule, value, finish);
    case kUint8:
      return element_bits_as<kUint8>(rule, value, finish);
    case kInt32:
      return element_bits_as<kInt32>(rule, value, finish);
    case kUint32:
      return element_bits_as<kUint32>(rule, value, finish);
    case kInt64:
      return element_bits_as<kInt64>(rule, value, finish);
    case kUint64:
      return element_bits_as<kUint64>(rule, value, finish);
    case kHalf:
      return element_bits_as<kHalf>(rule, value, finish);
    case kFloat:
      return element_bits_as<kFloat>(rule, value, finish);
    case kDouble:
      return element_bits_as<kDouble>(rule, value, finish);
    case kBfloat16:
      return element_bits_as<kBfloat16>(rule, value, finish);
    case kF8e4m3:
      return element_bits_as<kF8e4m3>(rule, value, finish);
    default:
      return element_bits_as<kF8e5m2>(rule, value, finish);
  }
}

// Element `index` of a payload, which is bytes.
TCPX_HOST_DEVICE Bits64 payload_element(int type, Bits64 key, Bits64 index) {
  const unsigned size = element_bytes(type);
  const Bits64 word = index * size / 4;
  const ElementKey at = element_key(key, word);
  const Bits64 low = element_hash(at, static_cast<unsigned>(word));
  if (size < 4) return low >> (8 * (index * size % 4)) & ((1u << (8 * size)) - 1);
  if (size == 4) return low;
  return low | static_cast<Bits64>(element_hash(at, static_cast<unsigned>(word + 1))) << 32;
}

}  // namespace tcpx
