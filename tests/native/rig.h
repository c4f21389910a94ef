// A rank for tests of the timed loop: a schedule of a few steps over a fake plugin.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "engine/clock.h"
#include "engine/connections.h"
#include "engine/program.h"
#include "engine/timed_loop.h"
#include "fake_net.h"

constexpr int kPeer = 1;
constexpr int kSendBuffer = 0;
constexpr int kReceiveBuffer = 1;
constexpr int kChunk = 0;  // ways to wait
constexpr int kWhole = 1;

// The table of a schedule, a row a call.
class Steps {
 public:
  Steps& send(int block, int pred = -1, int wait = kChunk, int lane = 0) {
    return row({0, kPeer, lane, kSendBuffer, block, -1, -1, 1, pred, wait, -1, 0});
  }
  Steps& receive(int block, int pred = -1, int wait = kChunk, int lane = 0) {
    return row({1, kPeer, lane, -1, -1, kReceiveBuffer, block, 1, pred, wait, -1, 0});
  }
  Steps& receive_from(int peer, int block) {
    return row({1, peer, 0, -1, -1, kReceiveBuffer, block, 1, -1, kChunk, -1, 0});
  }
  Steps& copy(int from, int to, int pred = -1, int wait = kChunk) {
    return row({2, -1, 0, kReceiveBuffer, from, kSendBuffer, to, 1, pred, wait, -1, 0});
  }
  Steps& pause(int microseconds, int pred = -1) {
    return row({5, -1, -1, -1, -1, -1, -1, microseconds, pred, kWhole, -1, 0});
  }
  Steps& row(const std::array<int32_t, tcpx::kStepColumns>& values) {
    table_.insert(table_.end(), values.begin(), values.end());
    return *this;
  }
  Steps& second_pred(int pred, int wait) {
    table_[table_.size() - 2] = pred;
    table_[table_.size() - 1] = wait;
    return *this;
  }
  const int32_t* data() const { return table_.data(); }
  size_t size() const { return table_.size() / tcpx::kStepColumns; }

 private:
  std::vector<int32_t> table_;
};

// Blocks of these lengths, one behind the other.
inline tcpx::BlockTable blocks_of(const std::vector<uint64_t>& lengths) {
  tcpx::BlockTable table;
  uint64_t at = 0;
  for (const uint64_t length : lengths) {
    table.offsets.push_back(at);
    table.lengths.push_back(length);
    at += length;
  }
  return table;
}

struct Rig {
  static constexpr size_t kStride = 4096;
  static constexpr uint64_t kSlots = 64;

  explicit Rig(int channels = 2, int lanes = 1, tcpx::TimedLoopLimits limits = {},
               const std::vector<int>& peers = {kPeer})
      : connections(net, 0), driver(net, connections, limits), channels_(channels) {
    for (const int peer : peers) {
      for (int lane = 0; lane < lanes; ++lane) {
        for (int channel = 0; channel < channels; ++channel) {
          const auto handle = connections.listen(peer, lane, channel);
          connections.add_send(peer, lane, channel, handle.data());
        }
      }
    }
    connections.establish(5.0);
  }

  // Registers real memory of kSlots slots and loads the steps over it.
  void load(const Steps& steps, const std::vector<uint64_t>& lengths, uint64_t chunk_bytes,
            uint64_t iterations) {
    load(std::vector<Steps>{steps}, lengths, chunk_bytes, iterations);
  }
  // Slot k has steps k, and so on in turn.
  void load(const std::vector<Steps>& turns, const std::vector<uint64_t>& lengths,
            uint64_t chunk_bytes, uint64_t iterations) {
    memory[kSendBuffer].assign(kStride * kSlots, 0);
    memory[kReceiveBuffer].assign(kStride * kSlots, 0);
    for (int buffer : {kSendBuffer, kReceiveBuffer}) {
      connections.register_buffer(buffer, memory[buffer].data(), memory[buffer].size(),
                                  kNetPtrHost);
      bases[buffer] = {memory[buffer].data(), kStride};
    }
    const tcpx::BlockTable blocks[tcpx::kBuffers] = {blocks_of(lengths), blocks_of(lengths), {}};
    std::vector<tcpx::Turn> of_rows;
    for (const Steps& steps : turns) of_rows.push_back({steps.data(), steps.size(), blocks});
    driver.load(tcpx::compile(of_rows, chunk_bytes, channels_), bases);
    driver.reserve(iterations);
  }

  bool run(uint64_t iterations, int64_t stall_ms = 2000) {
    tcpx::BatchPlan plan;
    plan.iterations = iterations;
    plan.stall_ns = stall_ms * 1'000'000;
    return driver.run(plan);
  }

  FakeComm* comm(tcpx::Direction direction, int channel, int lane = 0, int peer = kPeer) const {
    return static_cast<FakeComm*>(connections.find(direction, peer, lane, channel)->comm);
  }
  uint64_t iteration_of(const FakeEvent& event) const {
    const int buffer = event.comm->sends ? kSendBuffer : kReceiveBuffer;
    return static_cast<uint64_t>(event.data - memory[buffer].data()) / kStride;
  }
  uint64_t offset_of(const FakeEvent& event) const {
    const int buffer = event.comm->sends ? kSendBuffer : kReceiveBuffer;
    return static_cast<uint64_t>(event.data - memory[buffer].data()) % kStride;
  }

  FakeNet net;
  tcpx::Connections connections;
  tcpx::TimedLoop driver;
  std::vector<uint8_t> memory[tcpx::kBuffers];
  tcpx::SlotBase bases[tcpx::kBuffers];

 private:
  int channels_;
};
