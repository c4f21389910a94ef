#include "memory/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace tcpx {
namespace {

constexpr size_t kPage = 4096;

size_t page_aligned(size_t bytes) {
  return std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

}  // namespace

HostBuffer::HostBuffer(size_t bytes) : bytes_(bytes) {
  const size_t mapped = page_aligned(bytes);
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // Large pages where the system gives them: a batch walks through more memory than the TLB covers.
  madvise(memory, mapped, MADV_HUGEPAGE);
  data_ = static_cast<uint8_t*>(memory);
  for (size_t at = 0; at < mapped; at += kPage) static_cast<volatile uint8_t*>(data_)[at] = 0;
}

size_t HostBuffer::capacity() const { return page_aligned(bytes_); }

HostBuffer::~HostBuffer() { munmap(data_, page_aligned(bytes_)); }

}  // namespace tcpx
