// What native/cuda/device.h gives a kernel on a GPU, for the same source on the CPU: the threads of
// a block one after another, step by step, and every access looked up, so that one that is astray
// by a byte is an error as under compute-sanitizer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "fake.h"

#define __device__
#define __forceinline__ inline

using u8 = uint8_t;
using u32 = uint32_t;
using u64 = unsigned long long;

struct alignas(16) Quad {
  u32 x, y, z, w;
};
struct alignas(16) Words {
  u64 a, b;
};

namespace fakecuda {

struct Index {
  u32 x, y;
};

// What a kernel under way knows of itself; one runs at a time on a thread of a stream.
struct Running {
  CUdevice device;
  bool astray;
  bool reported;  // it told the CPU that all is done: whatever it writes after that is too late
};
inline thread_local Running running;

// `bytes` at an address as this kernel reaches them; a place of no importance where it may not.
inline uint8_t* touch(u64 at, size_t bytes) {
  static thread_local uint8_t nowhere[16];
  uint8_t* memory = at % bytes == 0 ? reach_from(running.device, at, bytes) : nullptr;
  if (memory != nullptr) return memory;
  running.astray = true;
  memset(nowhere, 0, sizeof(nowhere));
  return nowhere;
}

template <typename Value>
Value get(u64 at) {
  Value value;
  memcpy(&value, touch(at, sizeof(value)), sizeof(value));
  return value;
}

template <typename Value>
void put(u64 at, Value value) {
  if (running.reported) running.astray = true;
  memcpy(touch(at, sizeof(value)), &value, sizeof(value));
}

struct Registration {
  Registration(const char* name, size_t argument_bytes, bool (*run)(CUdevice, Grid, const void*));
};

}  // namespace fakecuda

inline thread_local fakecuda::Index threadIdx, blockIdx, blockDim, gridDim;

inline Quad load16(u64 at) { return fakecuda::get<Quad>(at); }
inline u64 load8(u64 at) { return fakecuda::get<u64>(at); }
inline u8 load1(u64 at) { return fakecuda::get<u8>(at); }
inline Quad load16_uncached(u64 at) { return fakecuda::get<Quad>(at); }
inline Words load_words_of_host(u64 at) {
  const auto* words = reinterpret_cast<const u64*>(fakecuda::touch(at, sizeof(Words)));
  // A GPU may see the second one first.
  const u64 b = __atomic_load_n(words + 1, __ATOMIC_ACQUIRE);
  return {__atomic_load_n(words, __ATOMIC_ACQUIRE), b};
}
inline void vote(u32& into, bool yes) {
  const u32 bit = 1u << threadIdx.x % 32;
  into = yes ? into | bit : into & ~bit;
}
inline u64 now_ns() {
  return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch().count());
}
inline void store16(u64 at, Quad q) { fakecuda::put(at, q); }
inline void store1(u64 at, u8 byte) { fakecuda::put(at, byte); }

inline void store8(u64 at, u64 value) {
  __atomic_store_n(reinterpret_cast<u64*>(fakecuda::touch(at, 8)), value, __ATOMIC_RELAXED);
}
inline void store8_for_host(u64 at, u64 value) {
  fakecuda::running.reported = true;
  __atomic_store_n(reinterpret_cast<u64*>(fakecuda::touch(at, 8)), value, __ATOMIC_RELEASE);
}
inline u32 count_released(u64 at, u32 last) {
  auto* count = reinterpret_cast<u32*>(fakecuda::touch(at, 4));
  const u32 before = *count;
  *count = before >= last ? 0 : before + 1;
  return before;
}
inline void add_count(u64 at, u64 value) {
  __atomic_fetch_add(reinterpret_cast<u64*>(fakecuda::touch(at, 8)), value, __ATOMIC_RELAXED);
}
inline void keep_least(u64 at, u64 value) {
  auto* least = reinterpret_cast<u64*>(fakecuda::touch(at, 8));
  u64 seen = __atomic_load_n(least, __ATOMIC_RELAXED);
  while (value < seen && !__atomic_compare_exchange_n(least, &seen, value, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {
  }
}

inline u32 shift_right(u32 low, u32 high, u32 shift) {
  return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> (shift & 31));
}

// A step of a block, for each of its threads; false: the kernel went astray, and is ended as a GPU
// ends it.
template <auto step, class Argument, class Shared>
bool tcpx_step(u32 threads, const Argument& argument, Shared& shared) {
  for (threadIdx.x = threads; threadIdx.x-- > 0;) step(argument, shared);
  return !fakecuda::running.astray;
}
template <auto... steps, class Argument, class Shared>
bool tcpx_in_steps(u32 threads, const Argument& argument, Shared& shared) {
  return (tcpx_step<steps>(threads, argument, shared) && ...);
}

// Blocks and threads from the last to the first: no kernel may count on an order.
#define TCPX_KERNEL(name, Argument, Shared, has_part, ...)                             \
  static bool name##_on_cpu(CUdevice device, fakecuda::Grid grid, const void* bytes) { \
    const auto& argument = *static_cast<const Argument*>(bytes);                       \
    fakecuda::running = {device, false, false};                                        \
    gridDim = {grid.blocks, grid.rows};                                                \
    blockDim = {grid.threads, 1};                                                      \
    for (u32 block = grid.blocks * grid.rows; block-- > 0;) {                          \
      blockIdx = {block % grid.blocks, block / grid.blocks};                           \
      if (!has_part(argument)) continue;                                               \
      alignas(16) uint8_t memory[sizeof(Shared)];                                      \
      memset(memory, 0xA5, sizeof(memory)); /* nobody cleared it */                    \
      auto& shared = *reinterpret_cast<Shared*>(memory);                               \
      if (!tcpx_in_steps<__VA_ARGS__>(grid.threads, argument, shared)) return false;   \
    }                                                                                  \
    return true;                                                                       \
  }                                                                                    \
  static const fakecuda::Registration name##_registration(#name, sizeof(Argument), name##_on_cpu);

// It looks once a turn, and then lets others have the core.
#define TCPX_STAYING_KERNEL(name, Argument, Shared, begin, stays, ...)                 \
  static bool name##_on_cpu(CUdevice device, fakecuda::Grid grid, const void* bytes) { \
    const auto& argument = *static_cast<const Argument*>(bytes);                       \
    gridDim = {grid.blocks, grid.rows};                                                \
    blockDim = {grid.threads, 1};                                                      \
    blockIdx = {0, 0};                                                                 \
    fakecuda::running = {device, false, false};                                        \
    alignas(16) uint8_t memory[sizeof(Shared)];                                        \
    memset(memory, 0xA5, sizeof(memory));                                              \
    auto& shared = *reinterpret_cast<Shared*>(memory);                                 \
    if (!tcpx_in_steps<begin>(grid.threads, argument, shared)) return false;           \
    while (stays(shared)) {                                                            \
      fakecuda::running.reported = false;                                              \
      if (!tcpx_in_steps<__VA_ARGS__>(grid.threads, argument, shared)) return false;   \
      std::this_thread::yield();                                                       \
    }                                                                                  \
    return true;                                                                       \
  }                                                                                    \
  static const fakecuda::Registration name##_registration(#name, sizeof(Argument), name##_on_cpu);
