// A receiving connection of softtcpx whose peer is the test.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "softtcpx/transfer/device.h"
#include "softtcpx/transfer/recv_comm.h"

namespace softtcpx {

// Gives up after half a minute, which then is what fails.
inline bool until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Settings of a device whose workers sleep as soon as they find nothing.
inline Settings sleepy(int64_t direct_sockets) {
  Settings settings;
  settings.spin_us = 0;
  settings.direct_sockets = direct_sockets;
  return settings;
}

// Workers by cores in host memory: the caller moves bytes, too.
inline Settings shared_with_caller(int64_t direct_sockets) {
  Settings settings = sleepy(direct_sockets);
  settings.host_workers = 1;
  return settings;
}

// A socket for a comm; its other end becomes the last of `peers`.
inline Fd one_of_a_pair(std::vector<Fd>& peers) {
  int ends[2];
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  peers.emplace_back(ends[1]);
  return Fd(ends[0]);
}

// Messages of kBytes each, one piece a message.
class Receiver {
 public:
  static constexpr uint32_t kBytes = 8;
  static constexpr int64_t kLarge = 256 * 1024;  // of a receive that may be a worker's to move
  static constexpr size_t kOnTheWire = sizeof(ChunkHeader) + kBytes;

  Receiver(Device& device, int data_sockets, int threads) : device_(device) {
    Sockets sockets;
    sockets.control = one_of_a_pair(peers_);
    for (int i = 0; i < data_sockets; ++i) sockets.data.push_back(one_of_a_pair(peers_));
    for (const Fd& fd : sockets.data) data_.push_back(fd.get());
    sockets.threads = threads;
    comm_ = std::make_unique<RecvComm>(device, std::move(sockets));
    comm_->open_bounce();
    CHECK(comm_->start());
    comm_->offer_device();
  }
  ~Receiver() { CHECK_EQ(comm_->finish(), int{kNetSuccess}); }

  int post(Memory memory = Memory::kHost, int64_t bytes = kBytes) {
    const Region region(&device_, memory_.data(), memory_.size(), memory, comm_->gpu());
    void* request = nullptr;
    const int code = comm_->receive(memory_.data(), bytes, &region, &request);
    if (code == kNetSuccess) pending_.push_back(static_cast<Request*>(request));
    return code;
  }
  // True when the oldest receive is done; freed is it by `consume`.
  bool test() {
    int done = 0;
    CHECK_EQ(comm_->test(*pending_[done_], &done, nullptr), int{kNetSuccess});
    done_ += static_cast<size_t>(done);
    return done == 1;
  }
  void consume() { CHECK_EQ(comm_->consumed(*pending_[consumed_++]), int{kNetSuccess}); }
  size_t done() const { return done_; }

  // The next message, in this data socket; from one thread at a time.
  void send(int socket, uint32_t flags = 0) {
    std::array<uint8_t, kOnTheWire> bytes{};
    const ChunkHeader header = make_chunk_header(sent_++, kBytes, 0, kBytes, flags);
    std::memcpy(bytes.data(), &header, sizeof header);
    CHECK_EQ(::send(peers_[1 + socket].get(), bytes.data(), bytes.size(), MSG_DONTWAIT),
             static_cast<ssize_t>(kOnTheWire));
  }
  // The receiver's own end of a data socket.
  int data_socket(int socket) const { return data_[socket]; }
  const Comm& comm() const { return *comm_; }

  int control_of_the_peer() const { return peers_[0].get(); }
  void close_control() { peers_[0].reset(); }

 private:
  Device& device_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kLarge);
  std::vector<Fd> peers_;  // control, then data
  std::vector<int> data_;
  std::unique_ptr<RecvComm> comm_;
  std::vector<Request*> pending_;  // done and consumed ones too
  size_t done_ = 0, consumed_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace softtcpx
