// What a rank computes of elements, in memory of the host. The reference is the specification;
// what runs is made of vectors, and gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/element.h"
#include "reduce/vector_width.h"

namespace tcpx {

// Throws std::invalid_argument for a type, an operation or a factor that cannot be, as the numbers
// that Python has.
Arithmetic make_arithmetic(int type, int op, double factor);

// out = reduction of (a, b), `bytes` of each, a whole number of elements; any alignment. `out` may
// be `a` or `b`, and overlaps neither otherwise.
void reduce_reference(const Arithmetic& arithmetic, const uint8_t* a, const uint8_t* b,
                      uint8_t* out, size_t bytes);
void reduce(const Arithmetic& arithmetic, const uint8_t* a, const uint8_t* b, uint8_t* out,
            size_t bytes);

// out = a scaled by the factor; `out` may be `a`.
void scale_reference(const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out, size_t bytes);
void scale(const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out, size_t bytes);

// The same by vectors of a width that this CPU has, for tests and measurements.
void reduce_with(VectorWidth width, const Arithmetic& arithmetic, const uint8_t* a,
                 const uint8_t* b, uint8_t* out, size_t bytes);
void scale_with(VectorWidth width, const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out,
                size_t bytes);

}  // namespace tcpx
