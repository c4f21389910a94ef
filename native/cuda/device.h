// How a kernel reaches memory: every access by a name that says what it must observe. Compiled for
// the GPU only; tests without one give the same names another meaning (tests/fakecuda).
#pragma once

#ifdef __CUDACC__

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(16) Quad {
  u32 x, y, z, w;
};

// Data that was complete before the launch: any cache may have it. The address is aligned.
__device__ __forceinline__ Quad load16(u64 at) {
  Quad q;
  asm("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(at));
  return q;
}
__device__ __forceinline__ u64 load8(u64 at) {
  u64 value;
  asm("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(at));
  return value;
}
__device__ __forceinline__ u8 load1(u64 at) {
  u32 byte;
  asm("ld.global.u8 %0, [%1];" : "=r"(byte) : "l"(at));
  return static_cast<u8>(byte);
}

// What the CPU writes between launches: past the cache of the multiprocessor, which may be older.
// No volatile load: those wait for each other where they are for one line of host memory.
__device__ __forceinline__ Quad load16_uncached(u64 at) {
  Quad q;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(at));
  return q;
}

// What the CPU writes while the kernel runs: each of the two words whole, and whoever has seen them
// sees what was written before them.
struct alignas(16) Words {
  u64 a, b;
};
__device__ __forceinline__ Words load_words_of_host(u64 at) {
  Words words;
  asm volatile("ld.acquire.sys.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(words.a), "=l"(words.b)
               : "l"(at)
               : "memory");
  return words;
}

__device__ __forceinline__ void store16(u64 at, Quad q) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(q.x), "r"(q.y), "r"(q.z),
               "r"(q.w)
               : "memory");
}
__device__ __forceinline__ void store1(u64 at, u8 byte) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(static_cast<u32>(byte)) : "memory");
}

// Counts from 0 to `last` and then from 0 again, for all blocks of the launch; the value before.
// What this thread's block wrote before its last barrier is seen by whoever sees the count and has
// a fence behind that. No older fence is used: those throw away the caches of the other blocks too.
__device__ __forceinline__ u32 count_released(u64 at, u32 last) {
  u32 before;
  asm volatile("atom.inc.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(at), "r"(last)
               : "memory");
  return before;
}
__device__ __forceinline__ void add_count(u64 at, u64 value) {
  atomicAdd(reinterpret_cast<u64*>(at), value);
}
__device__ __forceinline__ void keep_least(u64 at, u64 value) {
  atomicMin(reinterpret_cast<u64*>(at), value);
}

__device__ __forceinline__ void store8(u64 at, u64 value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

// For the CPU, which polls it: whoever sees it sees all that was written before.
__device__ __forceinline__ void store8_for_host(u64 at, u64 value) {
  asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value)
               : "memory");
}

// Bit n of `into`: what lane n of the warp says. Of a whole warp.
__device__ __forceinline__ void vote(u32& into, bool yes) {
  const u32 all = __ballot_sync(0xffffffffu, yes);
  if (threadIdx.x % 32 == 0) into = all;
}

__device__ __forceinline__ u64 now_ns() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// The low 32 bits of high:low shifted right; shift below 32.
__device__ __forceinline__ u32 shift_right(u32 low, u32 high, u32 shift) {
  return __funnelshift_r(low, high, shift);
}

// A kernel is a sequence of steps with a barrier of the block between two; each step is called with
// the argument of the launch and the shared memory of the block. A block for which `has_part` is
// false has nothing to do.
#define TCPX_KERNEL(name, Argument, Shared, has_part, ...)                     \
  extern "C" __global__ void name(const __grid_constant__ Argument argument) { \
    __shared__ Shared shared;                                                  \
    if (!has_part(argument)) return;                                           \
    tcpx_in_steps<__VA_ARGS__>(argument, shared);                              \
  }

template <auto first, auto... others, class Argument, class Shared>
__device__ __forceinline__ void tcpx_in_steps(const Argument& argument, Shared& shared) {
  first(argument, shared);
  ((__syncthreads(), others(argument, shared)), ...);
}

// A kernel that goes through its steps again and again, while `stays` says so. Its memory is as
// `begin` leaves it.
#define TCPX_STAYING_KERNEL(name, Argument, Shared, begin, stays, ...)         \
  extern "C" __global__ void name(const __grid_constant__ Argument argument) { \
    __shared__ Shared shared;                                                  \
    begin(argument, shared);                                                   \
    __syncthreads();                                                           \
    while (stays(shared)) {                                                    \
      tcpx_in_steps<__VA_ARGS__>(argument, shared);                            \
      __syncthreads();                                                         \
    }                                                                          \
  }

#endif
