// Finished receives for an unpacker on a GPU, and what the CPU makes of the same ones.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fake_gpu.h"
#include "unpack/cuda_unpacker.h"

enum class Bounce { kOnGpu, kPinned };

// A descriptor queue and a bounce buffer with random bytes, a destination full of guards. Every
// request has a stretch of the destination of its own.
class UnpackScene {
 public:
  static constexpr uint8_t kGuard = 0xA5;

  UnpackScene(Bounce where, size_t bounce_bytes, size_t destination_bytes, size_t queues = 1)
      : gpu_(test_gpu()),
        bounce_(random_bytes(bounce_bytes)),
        expected_(destination_bytes, kGuard),
        destination_(gpu_, destination_bytes) {
    if (where == Bounce::kOnGpu) {
      on_gpu_ = std::make_unique<tcpx::GpuMemory>(gpu_, bounce_bytes);
      bounce_address_ = on_gpu_->address();
    } else {
      pinned_ = std::make_unique<tcpx::PinnedMemory>(gpu_, bounce_bytes);
      bounce_address_ = pinned_->address();
    }
    upload(bounce_address_, bounce_.data(), bounce_.size());
    upload(destination_.address(), expected_.data(), expected_.size());
    for (size_t i = 0; i < queues; ++i) {
      memory_.push_back(std::make_unique<tcpx::PinnedMemory>(gpu_, sizeof(NetUnpackQueue)));
      sequences_.push_back(0);
    }
  }

  NetUnpackQueue& queue(size_t index = 0) {
    return *reinterpret_cast<NetUnpackQueue*>(memory_[index]->data());
  }

  // From now on the bounce buffer begins so much later.
  void shift_bounce(size_t bytes) { bounce_shift_ = bytes; }

  // The next receive of a queue, to `at` bytes of the destination; the CPU's result too.
  tcpx::UnpackResult receive(tcpx::Unpacker& unpacker, size_t at, uint64_t posted,
                             const std::vector<NetUnpackFragment>& fragments,
                             size_t queue_index = 0) {
    NetUnpackQueue& q = queue(queue_index);
    const uint64_t sequence = sequences_[queue_index]++;
    const uint64_t slot = sequence % kNetUnpackSlots;
    std::copy(fragments.begin(), fragments.end(), q.mem[slot]);
    q.cnt[slot] = fragments.size();
    const NetUnpackDevice device{&q, reinterpret_cast<void*>(bounce_address_ + bounce_shift_), 0};
    const tcpx::UnpackSource source = tcpx::unpack_source(device, sequence, posted);
    tcpx::UnpackSource on_host = source;
    on_host.bounce = bounce_.data() + bounce_shift_;
    on_host.count = fragments.size();  // whatever was read
    const auto wanted = tcpx::unpack_reference(on_host, expected_.data() + at, posted);
    const auto result =
        unpacker.submit(source, reinterpret_cast<uint8_t*>(destination_.address()) + at, posted);
    CHECK_EQ(result.bytes, wanted.bytes);
    CHECK_EQ(result.in_bounds, wanted.in_bounds);
    return result;
  }

  // Until all that was submitted is in place.
  static void finish(tcpx::Unpacker& unpacker) {
    unpacker.flush();
    while (unpacker.finished() < unpacker.last_ticket() && unpacker.failure().code == 0) {
    }
    CHECK_EQ(unpacker.failure().code, 0);
    CHECK_EQ(unpacker.finished(), unpacker.last_ticket());
  }

  // "" where the destination is what the CPU made of it.
  std::string difference() {
    std::vector<uint8_t> found(expected_.size());
    tcpx::copy_now(reinterpret_cast<tcpx::CudaAddress>(found.data()), destination_.address(),
                   found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] == expected_[i]) continue;
      return "byte " + std::to_string(i) + " is " + std::to_string(found[i]) + ", not " +
             std::to_string(expected_[i]);
    }
    return "";
  }

  std::vector<uint8_t>& expected() { return expected_; }
  tcpx::CudaAddress destination() const { return destination_.address(); }
  tcpx::CudaAddress bounce() const { return bounce_address_; }

  // New bytes in the bounce buffer, as when pages are used again.
  void refill() {
    bounce_ = random_bytes(bounce_.size());
    upload(bounce_address_, bounce_.data(), bounce_.size());
  }

 private:
  // Never the guard's value: a byte that was not written cannot pass for one that was.
  std::vector<uint8_t> random_bytes(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(random_());
      if (byte == kGuard) byte = 0;
    }
    return bytes;
  }

  static void upload(tcpx::CudaAddress to, const void* from, size_t bytes) {
    tcpx::copy_now(to, reinterpret_cast<tcpx::CudaAddress>(from), bytes);
  }

  std::mt19937 random_{7};
  tcpx::Gpu& gpu_;
  std::vector<uint8_t> bounce_;
  std::vector<uint8_t> expected_;
  tcpx::GpuMemory destination_;
  std::unique_ptr<tcpx::GpuMemory> on_gpu_;
  std::unique_ptr<tcpx::PinnedMemory> pinned_;
  tcpx::CudaAddress bounce_address_ = 0;
  size_t bounce_shift_ = 0;
  std::vector<std::unique_ptr<tcpx::PinnedMemory>> memory_;
  std::vector<uint64_t> sequences_;
};
