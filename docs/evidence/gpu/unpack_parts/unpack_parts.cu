// Where the unpack of pages spends its time: loops like those of native/unpack/unpack.cu, each with
// one thing changed, by the profiler, in turns. An experiment, kept as it ran; no part of the
// product.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -I tests/native -o unpack_parts
//     docs/evidence/gpu/unpack_parts/unpack_parts.cu tests/native/gpu_profiler.cc -ldl
//   ./unpack_parts ROUNDS FOLDER_OF_CUPTI       (medians of all rounds but two)
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gpu_profiler.h"
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(16) Quad {
  u32 x, y, z, w;
};
#define CK(x)                                                                   \
  do {                                                                          \
    cudaError_t e = (x);                                                        \
    if (e) {                                                                    \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
      exit(2);                                                                  \
    }                                                                           \
  } while (0)

struct Item {
  u64 fragments, bounce, destination;
  u32 first_block, count;
};
struct Args {
  u64 blocks_done, ticket_at, ticket;
  u32 items, group;
  Item item[96];
};

__device__ __forceinline__ Quad ld(u64 at) {
  Quad q;
  asm("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(at));
  return q;
}
__device__ __forceinline__ Quad ld256(u64 at) {
  Quad q;
  asm("ld.global.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(at));
  return q;
}
__device__ __forceinline__ Quad ldna(u64 at) {
  Quad q;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(at));
  return q;
}
__device__ __forceinline__ Quad ldef(u64 at) {
  Quad q;
  asm("{.reg .b64 p; createpolicy.fractional.L2::evict_first.b64 p, 1.0; "
      "ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], p;}"
      : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
      : "l"(at));
  return q;
}
__device__ __forceinline__ Quad ldcg(u64 at) {
  Quad q;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(q.x), "=r"(q.y), "=r"(q.z), "=r"(q.w)
               : "l"(at));
  return q;
}
__device__ __forceinline__ void st(u64 at, Quad q) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(q.x), "r"(q.y), "r"(q.z),
               "r"(q.w)
               : "memory");
}
__device__ __forceinline__ void stel(u64 at, Quad q) {
  asm volatile(
      "{.reg .b64 p; createpolicy.fractional.L2::evict_last.b64 p, 1.0; "
      "st.global.L2::cache_hint.v4.u32 [%0], {%1,%2,%3,%4}, p;}" ::"l"(at),
      "r"(q.x), "r"(q.y), "r"(q.z), "r"(q.w)
      : "memory");
}
__device__ __forceinline__ u32 count_released(u64 at, u32 last) {
  u32 b;
  asm volatile("atom.inc.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(b)
               : "l"(at), "r"(last)
               : "memory");
  return b;
}
__device__ __forceinline__ u32 count_relaxed(u64 at, u32 last) {
  u32 b;
  asm volatile("atom.inc.relaxed.gpu.global.u32 %0, [%1], %2;"
               : "=r"(b)
               : "l"(at), "r"(last)
               : "memory");
  return b;
}
__device__ __forceinline__ void tell(u64 at, u64 v) {
  asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v)
               : "memory");
}
__device__ __forceinline__ void tell_rel(u64 at, u64 v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}
__device__ __forceinline__ void tell_frel(u64 at, u64 v) {
  asm volatile("fence.release.sys; st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v)
               : "memory");
}
__device__ __forceinline__ void tell_nofence(u64 at, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

enum Load { LD, LD256, LDNA, LDEF };
template <int L>
__device__ __forceinline__ Quad load(u64 at) {
  return L == LD256 ? ld256(at) : L == LDNA ? ldna(at) : L == LDEF ? ldef(at) : ld(at);
}
template <bool E>
__device__ __forceinline__ void store(u64 at, Quad q) {
  E ? stel(at, q) : st(at, q);
}

template <int L, bool E, int N = 8>
__device__ __forceinline__ void move_page(u64 from, u64 to, u32 bytes, u32 lane) {
#pragma unroll
  for (u32 half = 0; half < 8 / N; ++half) {
    const u32 begin = 16 * lane + half * 512 * N;
    const u32 left = bytes > begin ? bytes - begin : 0;
    Quad q[N];
#pragma unroll
    for (u32 k = 0; k < N; ++k)
      if (left > 512 * k) q[k] = load<L>(from + begin + 512 * k);
#pragma unroll
    for (u32 k = 0; k < N; ++k)
      if (left > 512 * k) store<E>(to + begin + 512 * k, q[k]);
  }
}
__device__ __forceinline__ const Item& item_of(const Args& a, u32 block) {
  u32 low = 0, high = a.items;
  while (high - low > 1) {
    const u32 m = (low + high) / 2;
    if (a.item[m].first_block <= block)
      low = m;
    else
      high = m;
  }
  return a.item[low];
}
enum End { TELL, TELL_REL, TELL_FREL, NOFENCE, NOTELL, NOTHING, DEVICE };
template <int END>
__device__ __forceinline__ void report(const Args& a) {
  if (END == NOTHING || threadIdx.x > 0) return;
  const u32 last = gridDim.x - 1;
  if (last > 0 && count_released(a.blocks_done, last) < last) return;
  if (END == TELL) tell(a.ticket_at, a.ticket);
  if (END == TELL_REL) tell_rel(a.ticket_at, a.ticket);
  if (END == TELL_FREL) tell_frel(a.ticket_at, a.ticket);
  if (END == NOFENCE) tell_nofence(a.ticket_at, a.ticket);
  if (END == DEVICE) tell(a.blocks_done + 64, a.ticket);
}
// SRC: 0 descriptors, 1 computed
template <int SRC, int L, bool E, int END, bool BULK = false, int N = 8>
__global__ void base(const __grid_constant__ Args a) {
  __shared__ Quad fr[64];
  __shared__ u64 bo, de;
  if (threadIdx.x < a.group) {
    const Item& it = item_of(a, blockIdx.x);
    const u64 index = u64(blockIdx.x - it.first_block) * a.group + threadIdx.x;
    Quad f;
    if (SRC == 0)
      f = ldcg(it.fragments + index * 16);
    else {
      const u32 all = blockIdx.x * a.group + threadIdx.x;
      f.x = (all * 12345u * 2 + all) % 16384u * 4096u;
      f.y = 4096;
      f.z = u32(index) * 4096;
      f.w = 0;
    }
    if (index >= it.count) f.y = 0;
    fr[threadIdx.x] = f;
    if (BULK && f.y)
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(it.bounce + f.x), "r"(f.y)
                   : "memory");
    if (threadIdx.x == 0) {
      bo = it.bounce;
      de = it.destination;
    }
  }
  __syncthreads();
  const u32 lane = threadIdx.x % 32;
  for (u32 f = threadIdx.x / 32; f < a.group; f += blockDim.x / 32) {
    const Quad q = fr[f];
    move_page<L, E, N>(bo + q.x, de + (q.z | u64(q.w) << 32), q.y, lane);
  }
  __syncthreads();
  report<END>(a);
}
// A warp by itself: `group` fragments in a row of one item. blockDim 32*W; grid*W warps.
template <int L, int END>
__global__ void warps(const __grid_constant__ Args a) {
  const u32 lane = threadIdx.x % 32, warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const Item& it = item_of(a, warp);  // first_block counts warps here
  const u32 first = (warp - it.first_block) * a.group;
  Quad mine{};
  if (lane < a.group && first + lane < it.count) mine = ldcg(it.fragments + u64(first + lane) * 16);
  const u64 bo = it.bounce, de = it.destination;
  for (u32 f = 0; f < a.group; ++f) {
    const u32 x = __shfl_sync(~0u, mine.x, f), y = __shfl_sync(~0u, mine.y, f),
              z = __shfl_sync(~0u, mine.z, f), w = __shfl_sync(~0u, mine.w, f);
    move_page<L, false>(bo + x, de + (z | u64(w) << 32), y, lane);
  }
  __syncthreads();
  report<END>(a);
}
// Two sizes of groups: blocks below `small` have half a group. first_block in units of half groups.
template <int L, int END>
__global__ void mixed(const __grid_constant__ Args a, u32 small) {
  __shared__ Quad fr[32];
  __shared__ u64 bo, de;
  const u32 half = a.group / 2;
  const u32 unit = blockIdx.x < small ? blockIdx.x : small + 2 * (blockIdx.x - small);
  const u32 n = blockIdx.x < small ? half : a.group;
  if (threadIdx.x < n) {
    const Item& it = item_of(a, unit);
    const u64 index = u64(unit - it.first_block) * half + threadIdx.x;
    Quad f = ldcg(it.fragments + index * 16);
    if (index >= it.count) f.y = 0;
    fr[threadIdx.x] = f;
    if (threadIdx.x == 0) {
      bo = it.bounce;
      de = it.destination;
    }
  }
  __syncthreads();
  const u32 lane = threadIdx.x % 32;
  for (u32 f = threadIdx.x / 32; f < n; f += blockDim.x / 32) {
    const Quad q = fr[f];
    move_page<L, false>(bo + q.x, de + (q.z | u64(q.w) << 32), q.y, lane);
  }
  __syncthreads();
  report<END>(a);
}
// Persistent, dynamic: groups by a counter; the next group's descriptors are under way while data
// moves.
template <int L, int END>
__global__ void dynamic(const __grid_constant__ Args a, u32 groups, u64 next_at) {
  __shared__ Quad fr[2][32];
  __shared__ u64 bo[2], de[2];
  __shared__ u32 nx[2];
  const u32 lane = threadIdx.x % 32;
  auto fetch = [&](u32 g, u32 s) {
    if (threadIdx.x < a.group && g < groups) {
      const Item& it = item_of(a, g);
      const u64 index = u64(g - it.first_block) * a.group + threadIdx.x;
      const bool in = index < it.count;
      u32 d = static_cast<u32>(__cvta_generic_to_shared(&fr[s][threadIdx.x]));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(d),
                   "l"(it.fragments + (in ? index : 0) * 16), "r"(in ? 16u : 0u)
                   : "memory");
      if (threadIdx.x == 0) {
        bo[s] = it.bounce;
        de[s] = it.destination;
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  u32 g = blockIdx.x, s = 0;
  fetch(g, 0);
  while (g < groups) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    const u32 n = g + gridDim.x;
    __syncthreads();
    fetch(n, s ^ 1);
    for (u32 f = threadIdx.x / 32; f < a.group; f += blockDim.x / 32) {
      const Quad q = fr[s][f];
      move_page<L, false>(bo[s] + q.x, de[s] + (q.z | u64(q.w) << 32), q.y, lane);
    }
    g = n;
    s ^= 1;
  }
  __syncthreads();
  report<END>(a);
}
// Warps that stay: each takes pages by itself, stride of all warps, descriptors of the next one
// under way.
template <int L, int END>
__global__ void staying(const __grid_constant__ Args a, u32 total, u32 per_item) {
  const u32 lane = threadIdx.x % 32, W = gridDim.x * (blockDim.x / 32);
  u32 p = blockIdx.x + gridDim.x * (threadIdx.x / 32);
  auto desc = [&](u32 i) {
    const Item& it = a.item[i / per_item];
    return i < total ? ldcg(it.fragments + u64(i % per_item) * 16) : Quad{};
  };
  Quad q = desc(p);
  while (p < total) {
    const u32 n = p + W;
    Quad nq{};
    if (n < total) nq = desc(n);
    const Item& it = a.item[p / per_item];
    move_page<L, false>(it.bounce + q.x, it.destination + (q.z | u64(q.w) << 32), q.y, lane);
    q = nq;
    p = n;
  }
  __syncthreads();
  report<END>(a);
}
__global__ void nothing(const __grid_constant__ Args a) {}
template <int END>
__global__ void only_end(const __grid_constant__ Args a) {
  if (END == DEVICE) {
    if (threadIdx.x == 0) tell(a.blocks_done + 64, 1);
  } else
    report<END>(a);
}
__global__ void only_store(const __grid_constant__ Args a) {
  if (threadIdx.x == 0) tell_nofence(a.ticket_at, a.ticket);
}
__global__ void only_fence(const __grid_constant__ Args a) {
  if (threadIdx.x == 0) asm volatile("fence.acq_rel.sys;" ::: "memory");
}
__global__ void only_read(const __grid_constant__ Args a) {
  Quad q = ldcg(a.item[0].fragments);
  if (q.w == 77) st(a.blocks_done + 128, q);
}
struct Small {
  u64 at, v;
};
__global__ void nothing_small(const __grid_constant__ Small s) {}
__global__ void small_args(const __grid_constant__ Small s) { tell(s.at, s.v); }
// Plain copies for the ceiling of the body: each warp 4 KiB, blocks of `warps`.
template <int L, int PAGES>
__global__ void plain(const __grid_constant__ Args a) {
  const u32 lane = threadIdx.x % 32;
  const u64 page = (u64(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32);
  for (int i = 0; i < PAGES; ++i) {
    const u64 at = (page + u64(i) * gridDim.x * (blockDim.x / 32)) * 4096;
    move_page<L, false>(a.item[0].bounce + at, a.item[0].destination + at, 4096, lane);
  }
}

// blockIdx.y is the item. SRC: 0 descriptors, 1 computed shuffled, 2 computed in order, 3
// descriptors from device memory
template <int SRC, int END, int N = 8>
__global__ void flat(const __grid_constant__ Args a, u64 devdesc) {
  __shared__ Quad fr[64];
  const Item& it = a.item[blockIdx.y];
  if (threadIdx.x < a.group) {
    const u32 index = blockIdx.x * a.group + threadIdx.x;
    Quad f;
    if (SRC == 0)
      f = ldcg(it.fragments + u64(index) * 16);
    else if (SRC == 3)
      f = ldcg(devdesc + blockIdx.y * 32768 + u64(index) * 16);
    else {
      const u32 all = blockIdx.y * it.count + index;
      f.x = (SRC == 1 ? (all * 12345u * 2 + all) % 16384u : all) * 4096u;
      f.y = 4096;
      f.z = u32(index) * 4096;
      f.w = 0;
    }
    if (index >= it.count) f.y = 0;
    fr[threadIdx.x] = f;
  }
  __syncthreads();
  const u32 lane = threadIdx.x % 32;
  const u64 bo = it.bounce, de = it.destination;
  for (u32 f = threadIdx.x / 32; f < a.group; f += blockDim.x / 32) {
    const Quad q = fr[f];
    move_page<LD, false, N>(bo + q.x, de + (q.z | u64(q.w) << 32), q.y, lane);
  }
  if (END == NOTHING) return;
  __syncthreads();
  if (threadIdx.x > 0) return;
  const u32 last = gridDim.x * gridDim.y - 1;
  if (last > 0 && count_released(a.blocks_done, last) < last) return;
  if (END == TELL) tell(a.ticket_at, a.ticket);
}
// The same, a warp by itself: page = warp of the grid.
template <int SRC, int END>
__global__ void flatwarp(const __grid_constant__ Args a, u64 devdesc) {
  const Item& it = a.item[blockIdx.y];
  const u32 lane = threadIdx.x % 32, index = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  Quad q{};
  if (index < it.count) {
    if (SRC == 0)
      q = ldcg(it.fragments + u64(index) * 16);
    else {
      const u32 all = blockIdx.y * it.count + index;
      q = {(all * 12345u * 2 + all) % 16384u * 4096u, 4096, index * 4096, 0};
    }
  }
  move_page<LD, false>(it.bounce + q.x, it.destination + (q.z | u64(q.w) << 32), q.y, lane);
  if (END == NOTHING) return;
  __syncthreads();
  if (threadIdx.x > 0) return;
  const u32 last = gridDim.x * gridDim.y - 1;
  if (last > 0 && count_released(a.blocks_done, last) < last) return;
  if (END == TELL) tell(a.ticket_at, a.ticket);
}
template <int PAGES>
__global__ void plainshuf(const __grid_constant__ Args a) {
  const u32 lane = threadIdx.x % 32;
  const u32 page = (u32(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32);
  for (int i = 0; i < PAGES; ++i) {
    const u32 p = page + u32(i) * gridDim.x * (blockDim.x / 32);
    move_page<LD, false>(a.item[0].bounce + u64(p * 24691u % 16384u) * 4096,
                         a.item[0].destination + u64(p) * 4096, 4096, lane);
  }
}
// Descriptors in stages of S: those of the next stage are under way while this one's pages move.
// WHERE 0: barrier after the move; 1: between loads and stores. One page a warp a stage (S =
// warps).
template <int G, int S, int WHERE, int END, int MINB = 1>
__global__ __launch_bounds__(32 * S, MINB) void staged(const __grid_constant__ Args a) {
  __shared__ Quad fr[G];
  const Item& it = a.item[blockIdx.y];
  const u32 base = blockIdx.x * G, count = it.count;
  const u64 from = it.fragments;
  if (threadIdx.x < S) {
    const u32 index = base + threadIdx.x;
    Quad f = ldcg(from + u64(index) * 16);
    if (index >= count) f.y = 0;
    fr[threadIdx.x] = f;
  }
  __syncthreads();
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u64 bo = it.bounce, de = it.destination;
#pragma unroll
  for (int s = 0; s < G / S; ++s) {
    if (s + 1 < G / S && threadIdx.x < S) {
      const u32 index = base + (s + 1) * S + threadIdx.x;
      const bool in = index < count;
      const u32 d = static_cast<u32>(__cvta_generic_to_shared(&fr[(s + 1) * S + threadIdx.x]));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(d),
                   "l"(from + u64(in ? index : 0) * 16), "r"(in ? 16u : 0u)
                   : "memory");
    }
    const Quad q = fr[s * S + warp];
    const u64 f0 = bo + q.x + 16 * lane, t0 = de + (q.z | u64(q.w) << 32) + 16 * lane;
    const u32 left = q.y > 16 * lane ? q.y - 16 * lane : 0;
    Quad r[8];
#pragma unroll
    for (u32 k = 0; k < 8; ++k)
      if (left > 512 * k) r[k] = ld(f0 + 512 * k);
    if (WHERE == 1 && s + 1 < G / S) {
      asm volatile("cp.async.wait_all;" ::: "memory");
      __syncthreads();
    }
#pragma unroll
    for (u32 k = 0; k < 8; ++k)
      if (left > 512 * k) st(t0 + 512 * k, r[k]);
    if (WHERE == 0 && s + 1 < G / S) {
      asm volatile("cp.async.wait_all;" ::: "memory");
      __syncthreads();
    }
  }
  if (END == NOTHING) return;
  __syncthreads();
  if (threadIdx.x > 0) return;
  const u32 last = gridDim.x * gridDim.y - 1;
  if (last > 0 && count_released(a.blocks_done, last) < last) return;
  if (END == TELL) tell(a.ticket_at, a.ticket);
}
// flat with a bound on registers, and blocks without work that leave uncounted.
template <int END, int W, int MINB>
__global__ __launch_bounds__(32 * W, MINB) void flatlb(const __grid_constant__ Args a, u32 blocks) {
  __shared__ Quad fr[64];
  const Item& it = a.item[blockIdx.y];
  const u32 first = blockIdx.x * a.group;
  if (first >= it.count) return;
  if (threadIdx.x < a.group) {
    const u32 index = first + threadIdx.x;
    Quad f = ldcg(it.fragments + u64(index) * 16);
    if (index >= it.count) f.y = 0;
    fr[threadIdx.x] = f;
  }
  __syncthreads();
  const u32 lane = threadIdx.x % 32;
  const u64 bo = it.bounce, de = it.destination;
  for (u32 f = threadIdx.x / 32; f < a.group; f += W) {
    const Quad q = fr[f];
    move_page<LD, false, 8>(bo + q.x, de + (q.z | u64(q.w) << 32), q.y, lane);
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  const u32 last = blocks - 1;
  if (last > 0 && count_released(a.blocks_done, last) < last) return;
  if (END == TELL) tell(a.ticket_at, a.ticket);
}
struct Variant {
  std::string name;
  std::function<void(Args&, cudaStream_t)> launch;
  bool check = true;
};
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 31;
  std::string why;
  auto prof = tcpx::GpuProfiler::find(argc > 2 ? argv[2] : "", &why);
  if (!prof) {
    fprintf(stderr, "%s\n", why.c_str());
    return 2;
  }
  cudaDeviceProp pr;
  CK(cudaGetDeviceProperties(&pr, 0));
  printf("%s SMs %d\n", pr.name, pr.multiProcessorCount);
  const u32 SM = pr.multiProcessorCount;
  cudaStream_t s;
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  u8* devq;
  CK(cudaMalloc(&devq, 16 * 32768));
  u8 *lead, *bounce, *dest, *cdest, *done;
  CK(cudaMalloc(&lead, 64 << 20));
  CK(cudaMalloc(&bounce, 65 << 20));
  CK(cudaMalloc(&dest, 65 << 20));
  CK(cudaMalloc(&cdest, 65 << 20));
  CK(cudaMalloc(&done, 4096));
  CK(cudaMemset(done, 0, 4096));
  u8* queue;
  CK(cudaHostAlloc(&queue, 16 * 524416, cudaHostAllocMapped | cudaHostAllocPortable));
  u8* ticket;
  CK(cudaHostAlloc(&ticket, 4096, cudaHostAllocMapped | cudaHostAllocPortable));
  memset(ticket, 0, 4096);
  std::mt19937 rnd(5);
  std::vector<u8> host(65 << 20);
  for (size_t i = 0; i + 4 <= host.size(); i += 4) {
    u32 w = rnd();
    memcpy(&host[i], &w, 4);
  }
  CK(cudaMemcpy(bounce, host.data(), host.size(), cudaMemcpyHostToDevice));
  for (u32 F : {16384u, 128u, 1u}) {
    std::vector<u32> pages(F);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), rnd);
    const u32 per = 1024;
    const u32 items = (F + per - 1) / per;
    std::vector<u8> want(size_t(F) * 4096);
    for (u32 f = 0; f < F; ++f) {
      Quad* q = reinterpret_cast<Quad*>(queue + (f / per) * 32768) + f % per;
      *q = {pages[f] * 4096, 4096, (f % per) * 4096, 0};
      memcpy(&want[size_t(f) * 4096], &host[size_t(pages[f]) * 4096], 4096);
    }
    Args A{};
    A.blocks_done = (u64)done;
    A.ticket_at = (u64)ticket;
    A.items = items;
    auto prep = [=](Args& a, u32 group, u32 unit_group) {
      a.group = group;
      u32 b = 0;
      for (u32 i = 0; i < items; ++i) {
        u32 n = std::min(per, F - i * per);
        a.item[i] = {(u64)queue + i * 32768, (u64)bounce, (u64)dest + u64(i) * per * 4096, b, n};
        b += (n + unit_group - 1) / unit_group;
      }
      return b;
    };
    std::vector<Variant> V;
#define BASE(NAME, G, W, CHECK, ...)                           \
  V.push_back({NAME,                                           \
               [=](Args& a, cudaStream_t st) {                 \
                 u32 b = prep(a, G, G);                        \
                 base<__VA_ARGS__><<<b, 32 * (W), 0, st>>>(a); \
               },                                              \
               CHECK})
    if (F == 16384) {
      BASE("base", 32, 16, true, 0, LD, false, TELL);
      BASE("computed", 32, 16, false, 1, LD, false, TELL);
      BASE("computed-noend", 32, 16, false, 1, LD, false, NOTHING);
      BASE("notell", 32, 16, true, 0, LD, false, NOTELL);
      BASE("noend", 32, 16, true, 0, LD, false, NOTHING);
      BASE("tell-device", 32, 16, true, 0, LD, false, DEVICE);
      BASE("nofence", 32, 16, true, 0, LD, false, NOFENCE);
      BASE("g16w8", 16, 8, true, 0, LD, false, TELL);
      for (u32 w : {4u, 8u, 16u, 32u}) {
        V.push_back({"plain-1p-w" + std::to_string(w),
                     [=](Args& a, cudaStream_t st) {
                       prep(a, 32, 32);
                       plain<LD, 1><<<F / w, 32 * w, 0, st>>>(a);
                     },
                     false});
        V.push_back({"plain-4p-w" + std::to_string(w),
                     [=](Args& a, cudaStream_t st) {
                       prep(a, 32, 32);
                       plain<LD, 4><<<F / w / 4, 32 * w, 0, st>>>(a);
                     },
                     false});
      }
    } else if (F == 128) {
      BASE("base", 4, 4, true, 0, LD, false, TELL);
      BASE("notell", 4, 4, true, 0, LD, false, NOTELL);
      BASE("noend", 4, 4, true, 0, LD, false, NOTHING);
      BASE("nofence", 4, 4, true, 0, LD, false, NOFENCE);
      BASE("tell-device", 4, 4, true, 0, LD, false, DEVICE);
      BASE("g2w2", 2, 2, true, 0, LD, false, TELL);
      BASE("g1w1", 1, 1, true, 0, LD, false, TELL);
      BASE("g8w8", 8, 8, true, 0, LD, false, TELL);
      BASE("g16w16", 16, 16, true, 0, LD, false, TELL);
      BASE("computed", 4, 4, false, 1, LD, false, TELL);
      for (u32 w : {1u, 2u, 4u, 8u})
        V.push_back({"warps-g1w" + std::to_string(w), [=](Args& a, cudaStream_t st) {
                       u32 b = prep(a, 1, 1);
                       warps<LD, TELL><<<b / w, 32 * w, 0, st>>>(a);
                     }});
      V.push_back({"warps-g1w4-rel", [=](Args& a, cudaStream_t st) {
                     u32 b = prep(a, 1, 1);
                     warps<LD, TELL_REL><<<b / 4, 128, 0, st>>>(a);
                   }});
    } else {
      BASE("base", 1, 1, true, 0, LD, false, TELL);
      BASE("nofence", 1, 1, true, 0, LD, false, NOFENCE);
      V.push_back(
          {"nothing", [=](Args& a, cudaStream_t st) { nothing<<<1, 32, 0, st>>>(a); }, false});
      V.push_back({"empty-tell",
                   [=](Args& a, cudaStream_t st) { only_end<TELL><<<1, 32, 0, st>>>(a); }, false});
      V.push_back({"empty-st.release",
                   [=](Args& a, cudaStream_t st) { only_end<TELL_REL><<<1, 32, 0, st>>>(a); },
                   false});
      V.push_back({"empty-fence.release",
                   [=](Args& a, cudaStream_t st) { only_end<TELL_FREL><<<1, 32, 0, st>>>(a); },
                   false});
      V.push_back({"empty-device",
                   [=](Args& a, cudaStream_t st) { only_end<DEVICE><<<1, 32, 0, st>>>(a); },
                   false});
      V.push_back({"only-store", [=](Args& a, cudaStream_t st) { only_store<<<1, 32, 0, st>>>(a); },
                   false});
      V.push_back({"only-fence", [=](Args& a, cudaStream_t st) { only_fence<<<1, 32, 0, st>>>(a); },
                   false});
      V.push_back({"only-read",
                   [=](Args& a, cudaStream_t st) {
                     prep(a, 1, 1);
                     only_read<<<1, 32, 0, st>>>(a);
                   },
                   false});
      V.push_back({"small-args",
                   [=](Args& a, cudaStream_t st) {
                     small_args<<<1, 1, 0, st>>>(Small{a.ticket_at, a.ticket});
                   },
                   false});
    }

#define FLAT(NAME, G, W, CHECK, ...)                                                    \
  V.push_back({NAME,                                                                    \
               [=](Args& a, cudaStream_t st) {                                          \
                 prep(a, G, G);                                                         \
                 const u32 n = std::min(per, F);                                        \
                 flat<__VA_ARGS__>                                                      \
                     <<<dim3((n + G - 1) / G, items), 32 * (W), 0, st>>>(a, (u64)devq); \
               },                                                                       \
               CHECK})
#define FWARP(NAME, W, CHECK, ...)                                                      \
  V.push_back({NAME,                                                                    \
               [=](Args& a, cudaStream_t st) {                                          \
                 prep(a, 1, 1);                                                         \
                 const u32 n = std::min(per, F);                                        \
                 flatwarp<__VA_ARGS__>                                                  \
                     <<<dim3((n + W - 1) / W, items), 32 * (W), 0, st>>>(a, (u64)devq); \
               },                                                                       \
               CHECK})
    if (F == 16384) {
      FLAT("flat", 32, 16, true, 0, TELL);
      FLAT("flat-noend", 32, 16, true, 0, NOTHING);
      FLAT("flat-notell", 32, 16, true, 0, NOTELL);
      FLAT("flat-computed", 32, 16, false, 1, TELL);
      FLAT("flat-computed-noend", 32, 16, false, 1, NOTHING);
      FLAT("flat-dev", 32, 16, true, 3, TELL);
      FLAT("flat-dev-noend", 32, 16, true, 3, NOTHING);
      FLAT("flat-g16w8", 16, 8, true, 0, TELL);
      FLAT("flat-g8w4", 8, 4, true, 0, TELL);
      FLAT("flat-g4w4", 4, 4, true, 0, TELL);
      FLAT("flat-g64w16", 64, 16, true, 0, TELL);
      FLAT("flat-comp-g16w8-noend", 16, 8, false, 1, NOTHING);
      for (u32 w : {8u, 16u})
        V.push_back({"plainshuf-1p-w" + std::to_string(w),
                     [=](Args& a, cudaStream_t st) {
                       prep(a, 32, 32);
                       plainshuf<1><<<F / w, 32 * w, 0, st>>>(a);
                     },
                     false});
    } else if (F == 128) {
      FLAT("flat-g4w4", 4, 4, true, 0, TELL);
      FLAT("flat-g2w2", 2, 2, true, 0, TELL);
      FLAT("flat-g8w8", 8, 8, true, 0, TELL);
      FLAT("flat-g4w4-notell", 4, 4, true, 0, NOTELL);
      FWARP("fwarp-w1", 1, true, 0, TELL);
    } else {
      FLAT("flat-g1w1", 1, 1, true, 0, TELL);
      V.push_back({"nothing-small",
                   [=](Args& a, cudaStream_t st) { nothing_small<<<1, 32, 0, st>>>(Small{0, 0}); },
                   false});
    }

#define STG(NAME, G, S, WHERE, ...)                                          \
  V.push_back({NAME, [=](Args& a, cudaStream_t st) {                         \
                 prep(a, G, G);                                              \
                 const u32 n = std::min(per, F);                             \
                 staged<G, S, WHERE, __VA_ARGS__>                            \
                     <<<dim3((n + G - 1) / G, items), 32 * (S), 0, st>>>(a); \
               }})
#define FLB(NAME, G, W, MINB)                                                                    \
  V.push_back({NAME, [=](Args& a, cudaStream_t st) {                                             \
                 u32 b = prep(a, G, G);                                                          \
                 const u32 n = std::min(per, F);                                                 \
                 flatlb<TELL, W, MINB><<<dim3((n + G - 1) / G, items), 32 * (W), 0, st>>>(a, b); \
               }})
    if (F == 16384) {
      STG("stg0-32-16", 32, 16, 0, TELL);
      STG("stg1-32-16", 32, 16, 1, TELL);
      STG("stg0-64-16", 64, 16, 0, TELL);
      STG("stg1-64-16", 64, 16, 1, TELL);
      STG("stg0-16-8", 16, 8, 0, TELL);
      STG("stg1-16-8", 16, 8, 1, TELL);
      STG("stg0-32-8", 32, 8, 0, TELL);
      STG("stg1-32-8", 32, 8, 1, TELL);
      STG("stg0-64-8", 64, 8, 0, TELL);
      STG("stg1-64-8", 64, 8, 1, TELL);
      STG("stg1-32-16-noend", 32, 16, 1, NOTHING);
      STG("stg1-32-16-lb3", 32, 16, 1, TELL, 3);
      STG("stg1-64-32", 64, 32, 1, TELL);
      STG("stg1-16-4", 16, 4, 1, TELL);
      STG("stg1-32-4", 32, 4, 1, TELL);
      STG("stg1-8-4", 8, 4, 1, TELL);
      FLB("flatlb-32-16-1", 32, 16, 1);
      FLB("flatlb-32-16-2", 32, 16, 2);
      FLB("flatlb-32-16-3", 32, 16, 3);
      FLB("flatlb-16-8-5", 16, 8, 5);
      FLB("flatlb-16-8-6", 16, 8, 6);
      FLB("flatlb-24-8-5", 24, 8, 5);
      FLB("flatlb-24-12-3", 24, 12, 3);
      FLB("flatlb-20-10-4", 20, 10, 4);
      FLB("flatlb-48-16-2", 48, 16, 2);
      FLB("flatlb-8-4-8", 8, 4, 8);
    } else if (F == 128) {
      FLB("flatlb-4-4", 4, 4, 1);
      FLB("flatlb-4-4-8", 4, 4, 8);
      STG("stg1-8-4", 8, 4, 1, TELL);
    } else {
      FLB("flatlb-1-1", 1, 1, 1);
      // One large receive beside 95 of a fragment.
      auto ragged = [=](Args& a) {
        a.group = 32;
        a.items = 96;
        u32 b = 0;
        for (u32 i = 0; i < 96; ++i) {
          const u32 n = i == 50 ? 2048 : 1;
          a.item[i] = {(u64)queue + 65536, (u64)bounce, (u64)dest, b, n};
          b += (n + 31) / 32;
        }
        return b;
      };
      for (u32 i = 0; i < 2048; ++i)
        reinterpret_cast<Quad*>(queue + 65536)[i] = {i * 4096, 4096, i * 4096, 0};
      V.push_back({"ragged-base",
                   [=](Args& a, cudaStream_t st) {
                     u32 b = ragged(a);
                     base<0, LD, false, TELL><<<b, 512, 0, st>>>(a);
                   },
                   false});
      V.push_back({"ragged-flat",
                   [=](Args& a, cudaStream_t st) {
                     ragged(a);
                     flat<0, TELL><<<dim3(64, 96), 512, 0, st>>>(a, 0);
                   },
                   false});
      V.push_back({"ragged-flatlb",
                   [=](Args& a, cudaStream_t st) {
                     u32 b = ragged(a);
                     flatlb<TELL, 16, 1><<<dim3(64, 96), 512, 0, st>>>(a, b);
                   },
                   false});
    }
    // check
    CK(cudaMemcpy(devq, queue, 16 * 32768, cudaMemcpyHostToDevice));
    for (auto& v : V) {
      CK(cudaMemset(dest, 0xEE, 65 << 20));
      Args a = A;
      a.ticket = 1;
      v.launch(a, s);
      CK(cudaGetLastError());
      CK(cudaStreamSynchronize(s));
      if (!v.check) continue;
      std::vector<u8> got(want.size());
      CK(cudaMemcpy(got.data(), dest, got.size(), cudaMemcpyDeviceToHost));
      if (got != want) printf("WRONG %s\n", v.name.c_str());
    }
    for (int i = 0; i < 200; ++i) {
      CK(cudaMemsetAsync(lead, 0, 32 << 20, s));
    }
    CK(cudaStreamSynchronize(s));
    std::vector<std::vector<double>> T(V.size());
    std::vector<double> C;
    std::vector<u32> order(V.size());
    for (int r = 0; r < rounds; ++r) {
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), rnd);
      prof->begin();
      for (u32 i : order) {
        CK(cudaMemsetAsync(lead, 0, 32 << 20, s));
        Args a = A;
        a.ticket = r + 2;
        V[i].launch(a, s);
        CK(cudaStreamSynchronize(s));
        if (i % 4 == 0) {
          CK(cudaMemsetAsync(lead, 0, 32 << 20, s));
          CK(cudaMemcpyAsync(cdest, bounce, size_t(F) * 4096, cudaMemcpyDeviceToDevice, s));
          CK(cudaStreamSynchronize(s));
        }
      }
      auto t = prof->end();
      if (t.kernels.size() != V.size()) {
        fprintf(stderr, "kernels %zu\n", t.kernels.size());
        return 2;
      }
      if (r < 2) continue;
      for (size_t k = 0; k < order.size(); ++k) T[order[k]].push_back(t.kernels[k]);
      for (double c : t.copies) C.push_back(c);
    }
    const double c = median(C);
    printf("== %u fragments: copy %.2f us\n", F, c);
    for (size_t i = 0; i < V.size(); ++i) {
      double m = median(T[i]);
      printf("%-18s %7.2f  %.3f\n", V[i].name.c_str(), m, c / m);
    }
  }
}
