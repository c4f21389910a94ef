#include <algorithm>

#include "reduce/choose.h"
#include "reduce/reduce.h"
#include "reduce/vector_width.h"

#ifdef TCPX_AVX2
#include <immintrin.h>
#endif

// The iterations of the loop below are independent: none reads what another writes.
#if defined(__clang__)
#define TCPX_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define TCPX_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace tcpx {
namespace {

// An element anywhere in memory.
template <int type>
struct __attribute__((packed, may_alias)) Anywhere {
  typename Element<type>::Stored value;
};

template <int type, int op>
TCPX_INLINE_LOOP void reduce_loop(const uint8_t* a, const uint8_t* b, uint8_t* out, size_t n) {
  using At = Anywhere<type>;
  const auto* x = reinterpret_cast<const At*>(a);
  const auto* y = reinterpret_cast<const At*>(b);
  auto* z = reinterpret_cast<At*>(out);
  TCPX_INDEPENDENT
  for (size_t i = 0; i < n; ++i) z[i].value = reduced<type, op>(x[i].value, y[i].value);
}

template <int type, bool divides>
TCPX_INLINE_LOOP void scale_loop(const uint8_t* a, uint8_t* out, size_t n, double by) {
  using At = Anywhere<type>;
  const auto factor = factor_as<type>(by);
  const auto* x = reinterpret_cast<const At*>(a);
  auto* z = reinterpret_cast<At*>(out);
  TCPX_INDEPENDENT
  for (size_t i = 0; i < n; ++i) z[i].value = scaled<type, divides>(x[i].value, factor);
}

using ReduceLoop = void (*)(const uint8_t*, const uint8_t*, uint8_t*, size_t);
using ScaleLoop = void (*)(const uint8_t*, uint8_t*, size_t, double);

struct Loops {
  ReduceLoop reduce[kElementTypes][kMeetingOps];
  ScaleLoop scale[kElementTypes][2];  // 1: divides
};

#define TCPX_LOOP(width, type, op)                                                              \
  width void reduce_##type##_##op(const uint8_t* a, const uint8_t* b, uint8_t* out, size_t n) { \
    reduce_loop<type, op>(a, b, out, n);                                                        \
  }
#define TCPX_LOOPS(width, type)                                                     \
  TCPX_LOOP(width, type, kSum)                                                      \
  TCPX_LOOP(width, type, kProd)                                                     \
  TCPX_LOOP(width, type, kMin)                                                      \
  TCPX_LOOP(width, type, kMax)                                                      \
  width void multiply_##type(const uint8_t* a, uint8_t* out, size_t n, double by) { \
    scale_loop<type, false>(a, out, n, by);                                         \
  }                                                                                 \
  width void divide_##type(const uint8_t* a, uint8_t* out, size_t n, double by) {   \
    scale_loop<type, true>(a, out, n, by);                                          \
  }
#define TCPX_EACH_TYPE(X, width) \
  X(width, kInt8)                \
  X(width, kUint8)               \
  X(width, kInt32)               \
  X(width, kUint32)              \
  X(width, kInt64)               \
  X(width, kUint64)              \
  X(width, kHalf)                \
  X(width, kFloat)               \
  X(width, kDouble)              \
  X(width, kBfloat16)            \
  X(width, kF8e4m3)              \
  X(width, kF8e5m2)
#define TCPX_REDUCE_ROW(width, type) \
  {reduce_##type##_kSum, reduce_##type##_kProd, reduce_##type##_kMin, reduce_##type##_kMax},
#define TCPX_SCALE_ROW(width, type) {multiply_##type, divide_##type},
#define TCPX_LOOPS_OF_WIDTH(name, width)                         \
  namespace name {                                               \
  TCPX_EACH_TYPE(TCPX_LOOPS, width)                              \
  constexpr Loops kLoops = {{TCPX_EACH_TYPE(TCPX_REDUCE_ROW, )}, \
                            {TCPX_EACH_TYPE(TCPX_SCALE_ROW, )}}; \
  }

TCPX_LOOPS_OF_WIDTH(narrow, )
#ifdef TCPX_AVX2
TCPX_LOOPS_OF_WIDTH(avx2, TCPX_AVX2)
TCPX_LOOPS_OF_WIDTH(avx512, TCPX_AVX512)
#endif

// --- Half, which these CPUs convert, eight at a time: as fast as memory is
// ------------------------

#ifdef TCPX_AVX2

#define TCPX_HALF_LOOP(op, result)                                                              \
  TCPX_AVX2 void reduce_half_##op(const uint8_t* a, const uint8_t* b, uint8_t* out, size_t n) { \
    size_t i = 0;                                                                               \
    for (; i + 8 <= n; i += 8) {                                                                \
      const __m256 x =                                                                          \
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + 2 * i)));        \
      const __m256 y =                                                                          \
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 2 * i)));        \
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),                                 \
                       _mm256_cvtps_ph(result, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); \
    }                                                                                           \
    reduce_loop<kHalf, op>(a + 2 * i, b + 2 * i, out + 2 * i, n - i);                           \
  }

// Of two equal ones the instruction picks its second operand, and so does reduced().
TCPX_HALF_LOOP(kSum, _mm256_add_ps(x, y))
TCPX_HALF_LOOP(kProd, _mm256_mul_ps(x, y))
TCPX_HALF_LOOP(kMin, _mm256_min_ps(y, x))
TCPX_HALF_LOOP(kMax, _mm256_max_ps(y, x))

Loops with_half(Loops loops) {
  const ReduceLoop half[] = {reduce_half_kSum, reduce_half_kProd, reduce_half_kMin,
                             reduce_half_kMax};
  std::copy(half, half + kMeetingOps, loops.reduce[kHalf]);
  return loops;
}

#endif

const Loops& loops_of(VectorWidth width) {
#ifdef TCPX_AVX2
  static const Loops of_512 = with_half(avx512::kLoops), of_256 = with_half(avx2::kLoops);
  if (width == VectorWidth::k512) return of_512;
  if (width == VectorWidth::k256) return of_256;
#endif
  (void)width;
  return narrow::kLoops;
}

const Loops& loops() {
  static const Loops& chosen = loops_of(widest_vectors());
  return chosen;
}

// --- What no cache holds: past it ----------------------------------------------------------------

// A store reads its line first, unless it goes past the cache: then a sum crosses memory three
// times in place of four. Whoever wants the result soon must fetch it again, so only of what is
// larger than a core's share of a cache, as memcpy does it.
constexpr size_t kPastCacheFrom = size_t{16} << 20;
// Is reduced within the first cache, and then goes out: so little that the processor reads the
// next ones meanwhile.
constexpr size_t kBlock = 256;
constexpr size_t kLine = 64;

#ifdef TCPX_AVX2

void store_past_cache(const uint8_t* from, uint8_t* to, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
}

// True if all but the ends of `out` went past the cache; false: nothing was done.
bool reduce_past_cache(ReduceLoop loop, size_t size, const uint8_t* a, const uint8_t* b,
                       uint8_t* out, size_t bytes) {
  if (bytes < kPastCacheFrom || out == a || out == b) return false;
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
  if (head % size != 0) return false;
  alignas(kLine) uint8_t block[kBlock];
  loop(a, b, out, head / size);
  size_t i = head;
  for (; i + kBlock <= bytes; i += kBlock) {
    loop(a + i, b + i, block, kBlock / size);
    store_past_cache(block, out + i, kBlock);
  }
  loop(a + i, b + i, out + i, (bytes - i) / size);
  _mm_sfence();
  return true;
}

#else

bool reduce_past_cache(ReduceLoop, size_t, const uint8_t*, const uint8_t*, uint8_t*, size_t) {
  return false;
}

#endif

void reduce_by(const Loops& loops, const Arithmetic& arithmetic, const uint8_t* a, const uint8_t* b,
               uint8_t* out, size_t bytes) {
  const int op = arithmetic.op < kMeetingOps ? arithmetic.op : kSum;
  const ReduceLoop loop = loops.reduce[arithmetic.type][op];
  const size_t size = element_bytes(arithmetic.type);
  if (reduce_past_cache(loop, size, a, b, out, bytes)) return;
  loop(a, b, out, bytes / size);
}

void scale_by(const Loops& loops, const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out,
              size_t bytes) {
  loops.scale[arithmetic.type][arithmetic.op == kAvg](
      a, out, bytes / element_bytes(arithmetic.type), arithmetic.factor);
}

}  // namespace

void reduce(const Arithmetic& arithmetic, const uint8_t* a, const uint8_t* b, uint8_t* out,
            size_t bytes) {
  reduce_by(loops(), arithmetic, a, b, out, bytes);
}

void scale(const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out, size_t bytes) {
  scale_by(loops(), arithmetic, a, out, bytes);
}

void reduce_with(VectorWidth width, const Arithmetic& arithmetic, const uint8_t* a,
                 const uint8_t* b, uint8_t* out, size_t bytes) {
  reduce_by(loops_of(width), arithmetic, a, b, out, bytes);
}

void scale_with(VectorWidth width, const Arithmetic& arithmetic, const uint8_t* a, uint8_t* out,
                size_t bytes) {
  scale_by(loops_of(width), arithmetic, a, out, bytes);
}

}  // namespace tcpx
