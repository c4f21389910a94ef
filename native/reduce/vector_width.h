// How wide the vectors of the CPU at hand are, and functions that are there once for each width.
//
// Both by hand: not every compiler clones functions for the wide ones, the loader's choice between
// clones runs before a sanitizer is ready, and __builtin_cpu_supports() of zig knows no CPU.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define TCPX_AVX2 __attribute__((target("avx2,f16c")))  // no CPU has but the first
#if defined(__clang__)
#define TCPX_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define TCPX_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#endif

namespace tcpx {

enum class VectorWidth : int { kLeast = 0, k256 = 1, k512 = 2 };

// Of the CPU at hand, and of what the kernel saves of its registers.
VectorWidth widest_vectors();

}  // namespace tcpx

// NAME, which calls NAME_loop, an inline function that is there already, by the widest vectors.
#ifdef TCPX_AVX2
#define TCPX_BY_WIDTH(result, name, parameters, arguments)                   \
  TCPX_AVX2 result name##_256 parameters { return name##_loop arguments; }   \
  TCPX_AVX512 result name##_512 parameters { return name##_loop arguments; } \
  result name parameters {                                                   \
    switch (widest_vectors()) {                                              \
      case VectorWidth::k512:                                                \
        return name##_512 arguments;                                         \
      case VectorWidth::k256:                                                \
        return name##_256 arguments;                                         \
      case VectorWidth::kLeast:                                              \
        break;                                                               \
    }                                                                        \
    return name##_loop arguments;                                            \
  }
#else
#define TCPX_BY_WIDTH(result, name, parameters, arguments) \
  result name parameters { return name##_loop arguments; }
#endif
#define TCPX_INLINE_LOOP inline __attribute__((always_inline))
