#include "memory/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace tcpx {
namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) {
  return std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

}  // namespace

HostBuffer::HostBuffer(size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(memory);
}

HostBuffer::~HostBuffer() { munmap(data_, whole_pages(bytes_)); }

}  // namespace tcpx
