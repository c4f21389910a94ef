// Reduces what was received with an operand of this rank, in one pass: fragments and the operand
// in, the result out. reduce_fragments (reduce_fragments.cc) says what the result must be. A type
// and an operation have kernels of their own, which are compiled where they are wanted: what puts
// this text to the compiler adds a line for each.
#include "reduce/element.h"
#include "unpack/device_fragments.h"
#include "unpack/reduce_arguments.h"

namespace tcpx {
namespace {

struct Nothing {};

constexpr u32 kPiece = 4096;  // bytes that a warp takes at once where all lie in one piece

// --- What is done with elements
// -------------------------------------------------------------------

template <int type, int op>
struct Reduces {
  static constexpr u32 kSize = element_bytes(type);
  __device__ __forceinline__ u64 operator()(u64 received, u64 local) const {
    using Stored = typename Element<type>::Stored;
    return bits_of_stored(
        reduced<type, op>(stored_of_bits<Stored>(received), stored_of_bits<Stored>(local)));
  }
};

template <int type, bool divides>
struct Scales {
  static constexpr u32 kSize = element_bytes(type);
  typename Element<type>::Factor factor;
  __device__ __forceinline__ u64 operator()(u64 from, u64) const {
    using Stored = typename Element<type>::Stored;
    return bits_of_stored(scaled<type, divides>(stored_of_bits<Stored>(from), factor));
  }
};

// A word of whole elements.
template <typename Work>
__device__ __forceinline__ u32 word_of(const Work& work, u32 a, u32 b) {
  constexpr u32 kBits = 8 * (Work::kSize < 4 ? Work::kSize : 4);
  constexpr u32 kMask = kBits == 32 ? ~0u : (1u << (kBits % 32)) - 1;
  u32 word = 0;
#pragma unroll
  for (u32 shift = 0; shift < 32; shift += kBits) {
    word |= static_cast<u32>(work(a >> shift & kMask, b >> shift & kMask)) << shift;
  }
  return word;
}

template <typename Work>
__device__ __forceinline__ Quad quad_of(const Work& work, Quad a, Quad b) {
  if constexpr (Work::kSize == 8) {
    const u64 low = work(a.x | static_cast<u64>(a.y) << 32, b.x | static_cast<u64>(b.y) << 32);
    const u64 high = work(a.z | static_cast<u64>(a.w) << 32, b.z | static_cast<u64>(b.w) << 32);
    return {static_cast<u32>(low), static_cast<u32>(low >> 32), static_cast<u32>(high),
            static_cast<u32>(high >> 32)};
  } else {
    return {word_of(work, a.x, b.x), word_of(work, a.y, b.y), word_of(work, a.z, b.z),
            word_of(work, a.w, b.w)};
  }
}

// --- Elements that lie one behind the other
// -------------------------------------------------------

template <u32 size>
__device__ __forceinline__ u64 load_element(u64 at) {
  u64 bits = 0;
#pragma unroll
  for (u32 k = 0; k < size; ++k) bits |= static_cast<u64>(load1(at + k)) << (8 * k);
  return bits;
}

template <u32 size>
__device__ __forceinline__ void store_element(u64 at, u64 bits) {
#pragma unroll
  for (u32 k = 0; k < size; ++k) store1(at + k, static_cast<u8>(bits >> (8 * k)));
}

// 16 bytes from any address; what lies beside them is read only where they begin within it.
template <bool kAligned>
__device__ __forceinline__ Quad load_quad(u64 at) {
  if (kAligned) return load16(at);
  const u32 skip = static_cast<u32>(at % kQuad);
  const Quad low = load16(at - skip);
  return skip == 0 ? low : cut_out(low, load16(at - skip + kQuad), skip);
}

template <bool kAligned, typename Work>
__device__ __forceinline__ void work_quads(const Work& work, u64 from, u64 local, u64 to, u32 quads,
                                           u32 lane) {
  // Under way at once; of small elements fewer, whose code would not fit a multiprocessor's cache.
  constexpr u32 kLoads = !kAligned ? 2 : Work::kSize == 1 ? 2 : 8;
  for (u32 first = lane; first < quads; first += 32 * kLoads) {
    Quad a[kLoads], b[kLoads];
#pragma unroll
    for (u32 k = 0; k < kLoads; ++k) {
      const u64 i = kQuad * static_cast<u64>(first + 32 * k);
      if (first + 32 * k >= quads) continue;
      a[k] = load_quad<kAligned>(from + i);
      b[k] = load_quad<kAligned>(local + i);
    }
#pragma unroll
    for (u32 k = 0; k < kLoads; ++k) {
      if (first + 32 * k >= quads) continue;
      store16(to + kQuad * static_cast<u64>(first + 32 * k), quad_of(work, a[k], b[k]));
    }
  }
}

// A warp takes `bytes` of whole elements, from anywhere to a multiple of an element.
template <typename Work>
__device__ __forceinline__ void work_run(const Work& work, u64 from, u64 local, u64 to, u32 bytes,
                                         u32 lane) {
  constexpr u32 kSize = Work::kSize;
  const u32 to_aligned = static_cast<u32>(-to % kQuad);
  const u32 head = to_aligned < bytes ? to_aligned : bytes;
  const u32 quads = (bytes - head) / kQuad;
  const u32 tail = head + kQuad * quads;
  const u32 mine = lane * kSize;
  const auto edge = [&](u32 i) {
    store_element<kSize>(to + i,
                         work(load_element<kSize>(from + i), load_element<kSize>(local + i)));
  };
  if (mine < head) edge(mine);
  if (mine < bytes - tail) edge(tail + mine);
  if (((from + head) | (local + head)) % kQuad == 0) {
    work_quads<true>(work, from + head, local + head, to + head, quads, lane);
  } else {
    work_quads<false>(work, from + head, local + head, to + head, quads, lane);
  }
}

// --- Fragments
// ------------------------------------------------------------------------------------

__device__ __forceinline__ u64 begin_of(Quad fragment) {
  return fragment.z | static_cast<u64>(fragment.w) << 32;
}

// Where byte `at` of what was received is, looked for from fragment `from` on; 0: it is nobody's.
__device__ __forceinline__ u64 find_byte(const ReduceItem& item, u32 from, u64 at) {
  for (u32 k = 0; k < item.fragment_count; ++k) {
    const u32 index = (from + k) % item.fragment_count;
    const Quad fragment = load16_uncached(item.fragments + index * sizeof(Quad));
    const u64 into = at - begin_of(fragment);
    if (into < fragment.y) return item.bounce + fragment.x + into;
  }
  return 0;
}

// An element that begins in fragment `index` and ends elsewhere.
template <typename Work>
__device__ __forceinline__ void work_across(const Work& work, const ReduceItem& item, u32 index,
                                            u64 at, u64 end) {
  u64 bits = 0;
  for (u32 k = 0; k < Work::kSize; ++k) {
    const u64 byte = find_byte(item, index + (at + k >= end), at + k);
    if (byte == 0) return;
    bits |= static_cast<u64>(load1(byte)) << (8 * k);
  }
  store_element<Work::kSize>(item.destination + at,
                             work(bits, load_element<Work::kSize>(item.local + at)));
}

// A warp a fragment.
template <int type, int op>
__device__ __forceinline__ void put_reduced(const ReduceArguments& a, Shared& shared) {
  const Reduces<type, op> work;
  constexpr u32 kSize = Reduces<type, op>::kSize;
  const ReduceItem& item = item_of_block(a);
  const u32 lane = threadIdx.x % 32;
  for (u32 f = threadIdx.x / 32; f < a.group; f += blockDim.x / 32) {
    const Quad fragment = shared.fragment[f];
    if (fragment.y == 0) continue;
    const u64 begin = begin_of(fragment);
    const u64 end = begin + fragment.y;
    const u64 first = (begin + kSize - 1) / kSize * kSize;
    const u64 last = end / kSize * kSize;
    if (first < last) {
      work_run(work, shared.bounce + fragment.x + (first - begin), item.local + first,
               shared.destination + first, static_cast<u32>(last - first), lane);
    }
    if (lane == 0 && last >= begin && last < end) {
      work_across(work, item, blockIdx.x * a.group + f, last, end);
    }
  }
}

// --- Elements in one piece
// ------------------------------------------------------------------------

__device__ __forceinline__ bool every_block(const LocalArguments&) { return true; }

template <typename Work>
__device__ __forceinline__ void work_pieces(const LocalArguments& a, const Work& work) {
  const u64 warps = static_cast<u64>(gridDim.x) * (blockDim.x / 32);
  const u64 warp = static_cast<u64>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  for (u64 at = warp * kPiece; at < a.bytes; at += warps * kPiece) {
    const u64 left = a.bytes - at;
    work_run(work, a.from + at, a.local + at, a.destination + at,
             static_cast<u32>(left < kPiece ? left : kPiece), threadIdx.x % 32);
  }
}

template <int type, int op>
__device__ __forceinline__ void reduce_pieces(const LocalArguments& a, Nothing&) {
  work_pieces(a, Reduces<type, op>());
}

template <int type, int divides>
__device__ __forceinline__ void scale_pieces(const LocalArguments& a, Nothing&) {
  work_pieces(a, Scales<type, divides != 0>{factor_as<type>(a.factor)});
}

}  // namespace

#define TCPX_REDUCE_FRAGMENTS(name, type, op)                                 \
  TCPX_KERNEL(name, ReduceArguments, Shared, has_part, take<ReduceArguments>, \
              put_reduced<type, op>, report<ReduceArguments>)
#define TCPX_REDUCE_LOCAL(name, type, op) \
  TCPX_KERNEL(name, LocalArguments, Nothing, every_block, reduce_pieces<type, op>)
#define TCPX_SCALE(name, type, divides) \
  TCPX_KERNEL(name, LocalArguments, Nothing, every_block, scale_pieces<type, divides>)

}  // namespace tcpx
