// Host memory for messages: page-aligned, zeroed and touched, so that no timed byte faults a page
// in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx {

class HostBuffer {
 public:
  // Throws std::bad_alloc where the system has no such memory.
  explicit HostBuffer(size_t bytes);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  size_t capacity() const;  // whole pages: what may be registered as GPU memory

 private:
  uint8_t* data_;
  size_t bytes_;
};

}  // namespace tcpx
