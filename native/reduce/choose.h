// From numbers that are known when a program runs to a template's.
#pragma once

#include <type_traits>
#include <utility>

#include "reduce/element.h"

namespace tcpx {

template <int value>
using Number = std::integral_constant<int, value>;

// Calls use(Number<type>()).
template <typename Use>
void with_type(ElementType type, Use&& use) {
  switch (type) {
    case kInt8:
      return use(Number<kInt8>());
    case kUint8:
      return use(Number<kUint8>());
    case kInt32:
      return use(Number<kInt32>());
    case kUint32:
      return use(Number<kUint32>());
    case kInt64:
      return use(Number<kInt64>());
    case kUint64:
      return use(Number<kUint64>());
    case kHalf:
      return use(Number<kHalf>());
    case kFloat:
      return use(Number<kFloat>());
    case kDouble:
      return use(Number<kDouble>());
    case kBfloat16:
      return use(Number<kBfloat16>());
    case kF8e4m3:
      return use(Number<kF8e4m3>());
    case kF8e5m2:
      return use(Number<kF8e5m2>());
  }
}

// Calls use(Number<op>()) of the operation by which two elements meet.
template <typename Use>
void with_meeting_op(ReduceOp op, Use&& use) {
  switch (op) {
    case kProd:
      return use(Number<kProd>());
    case kMin:
      return use(Number<kMin>());
    case kMax:
      return use(Number<kMax>());
    default:
      return use(Number<kSum>());
  }
}

}  // namespace tcpx
