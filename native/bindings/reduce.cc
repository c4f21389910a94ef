#include "reduce/reduce.h"

#include <cstring>
#include <vector>

#include "bindings/bind.h"

namespace tcpx {
namespace {

void require_elements(const Arithmetic& arithmetic, size_t bytes) {
  if (bytes % element_bytes(arithmetic.type) != 0) throw nb::value_error("no whole elements");
}

nb::bytes reduced_bytes(int dtype, int redop, const nb::bytes& a, const nb::bytes& b) {
  const Arithmetic arithmetic = make_arithmetic(dtype, redop, 1);
  require_elements(arithmetic, a.size());
  if (a.size() != b.size()) throw nb::value_error("operands of unequal lengths");
  std::vector<uint8_t> out(a.size());
  reduce(arithmetic, reinterpret_cast<const uint8_t*>(a.c_str()),
         reinterpret_cast<const uint8_t*>(b.c_str()), out.data(), out.size());
  return nb::bytes(out.data(), out.size());
}

nb::bytes scaled_bytes(int dtype, int redop, double factor, const nb::bytes& a) {
  const Arithmetic arithmetic = make_arithmetic(dtype, redop, factor);
  require_elements(arithmetic, a.size());
  std::vector<uint8_t> out(a.size());
  scale(arithmetic, reinterpret_cast<const uint8_t*>(a.c_str()), out.data(), out.size());
  return nb::bytes(out.data(), out.size());
}

}  // namespace

void bind_reduce(nb::module_& m) {
  m.def("reduce", &reduced_bytes, "dtype"_a, "redop"_a, "a"_a, "b"_a,
        "The reduction of two arrays of elements, as the engine computes it.");
  m.def("scale", &scaled_bytes, "dtype"_a, "redop"_a, "factor"_a, "a"_a,
        "An array of elements scaled by a factor, as the engine computes it.");
}

}  // namespace tcpx
