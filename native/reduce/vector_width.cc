#include "reduce/vector_width.h"

#ifdef TCPX_AVX2
#include <cpuid.h>

#include <cstdint>
#endif

namespace tcpx {
namespace {

#ifdef TCPX_AVX2

// Which registers the kernel saves when it switches threads.
uint32_t saved_registers() {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

VectorWidth look() {
  constexpr uint32_t kOsXsave = 1u << 27, kF16c = 1u << 29;                // leaf 1, ecx
  constexpr uint32_t kAvx2 = 1u << 5;                                      // leaf 7, ebx
  constexpr uint32_t kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // f, dq, bw, vl
  constexpr uint32_t kSaved256 = 1u << 1 | 1u << 2;                        // xmm, ymm
  constexpr uint32_t kSaved512 = kSaved256 | 1u << 5 | 1u << 6 | 1u << 7;  // masks, zmm
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return VectorWidth::kLeast;
  if (!(ecx & kOsXsave) || !(ecx & kF16c)) return VectorWidth::kLeast;
  const uint32_t saved = saved_registers();
  if ((saved & kSaved256) != kSaved256) return VectorWidth::kLeast;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return VectorWidth::kLeast;
  if (!(ebx & kAvx2)) return VectorWidth::kLeast;
  const bool wide = (ebx & kAvx512) == kAvx512 && (saved & kSaved512) == kSaved512;
  return wide ? VectorWidth::k512 : VectorWidth::k256;
}

#else

VectorWidth look() { return VectorWidth::kLeast; }

#endif

}  // namespace

VectorWidth widest_vectors() {
  static const VectorWidth found = look();
  return found;
}

}  // namespace tcpx
