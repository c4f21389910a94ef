// glibc's own allocator, counted while a test says so; operator new ends here too. It replaces
// malloc, so one file of a program includes it.
#pragma once

#include <atomic>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

inline std::atomic<bool> g_counting{false};
inline std::atomic<int> g_allocations{0};

inline void note_allocation() {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
}

extern "C" {
void* malloc(size_t bytes) {
  note_allocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  note_allocation();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  note_allocation();
  return __libc_memalign(alignment, bytes);
}
}
