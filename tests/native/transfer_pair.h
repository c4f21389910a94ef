// A session with one peer over a plugin that the test scripts: both directions, small chunks.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "engine/session.h"
#include "fake_net.h"

namespace tcpx {

constexpr int64_t kPatient = 5'000'000'000;
constexpr uint64_t kChunkBytes = 100;

inline TransferLimits small_chunks(int channels) { return {channels, kChunkBytes, 12, 16}; }

// A session with both directions up over a plugin that the test scripts.
struct Pair {
  explicit Pair(int channels = 2, bool established = true)
      : session(net, 0, small_chunks(channels)) {
    for (int channel = 0; channel < channels; ++channel) {
      session.add_send(channel, session.listen(channel).data());
    }
    if (established) session.establish(5.0, std::nullopt);
  }
  FakeComm* comm(Direction direction, int channel) {
    return static_cast<FakeComm*>(
        session.connections().find(direction, kUnranked, 0, channel)->comm);
  }
  int memory(size_t bytes) {
    memories.emplace_back(bytes + 1);
    return session.register_memory(memories.back().data(), bytes, kNetPtrHost);
  }
  uint64_t send(int memory, uint64_t bytes, uint64_t transfer = 0) {
    return posted(Direction::kSend, memory, bytes, transfer);
  }
  uint64_t receive(int memory, uint64_t bytes, uint64_t transfer = 0) {
    return posted(Direction::kReceive, memory, bytes, transfer);
  }
  uint64_t posted(Direction direction, int memory, uint64_t bytes, uint64_t transfer) {
    if (transfer == 0) transfer = session.create();
    session.post(transfer, direction, memory, 0, bytes);
    return transfer;
  }
  WaitResult wait(uint64_t transfer, int64_t patience_ns = kPatient) {
    return session.wait(transfer, patience_ns);
  }

  FakeNet net;
  Session session;
  std::deque<std::vector<uint8_t>> memories;
};

inline bool never(const FakeRequest&) { return false; }

}  // namespace tcpx
