// Two ranks of the raw peer in one process, over real sockets on lo.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "baselines/raw_links.h"
#include "baselines/raw_loop.h"
#include "rig.h"

constexpr int kSpins = 100;
constexpr int kSleeps = 0;  // no core of its own

inline tcpx::RawSettings on_lo(int streams = 1, bool two_way = false) {
  tcpx::RawSettings settings;
  settings.interface = "lo";
  settings.streams = streams;
  settings.two_way = two_way;
  return settings;
}

// Runs both at once, so that each may wait for the other.
template <typename First, typename Second>
void run_two(First first, Second second) {
  std::exception_ptr error;
  std::thread other([&] {
    try {
      second();
    } catch (...) {
      error = std::current_exception();
    }
  });
  first();
  other.join();
  if (error) std::rethrow_exception(error);
}

inline tcpx::BatchPlan batch_of(uint64_t iterations, int64_t stall_ms = 5000,
                                uint64_t first_slot = 0) {
  tcpx::BatchPlan plan;
  plan.first_slot = first_slot;
  plan.iterations = iterations;
  plan.stall_ns = stall_ms * 1'000'000;
  return plan;
}

// What rank `rank` puts at `offset` of its send slot.
inline uint8_t sent_byte(int rank, uint64_t slot, uint64_t offset) {
  return static_cast<uint8_t>(17 + 101 * rank + 29 * slot + offset * 7 + (offset >> 8));
}

struct RawRank {
  static constexpr uint64_t kSlots = 8;
  static constexpr uint8_t kPoison = 0xEE;

  RawRank(int rank_, const tcpx::RawSettings& settings, int spins)
      : rank(rank_), links(new tcpx::RawLinks(settings)), loop(*links, spins) {}

  // Steps name their peer kPeer; here it is the other of the two.
  void load(const Steps& steps, const std::vector<uint64_t>& lengths, uint64_t chunk_bytes,
            uint64_t iterations = kSlots) {
    std::vector<int32_t> table(steps.data(), steps.data() + steps.size() * tcpx::kStepColumns);
    for (size_t at = 1; at < table.size(); at += tcpx::kStepColumns) {
      if (table[at] >= 0) table[at] = 1 - rank;
    }
    bytes = 0;
    for (const uint64_t length : lengths) bytes += length;
    stride = bytes + 64;
    memory[kSendBuffer].resize(stride * kSlots);
    memory[kReceiveBuffer].assign(stride * kSlots, kPoison);
    for (uint64_t i = 0; i < memory[kSendBuffer].size(); ++i) {
      memory[kSendBuffer][i] = sent_byte(rank, i / stride, i % stride);
    }
    tcpx::SlotBase bases[tcpx::kBuffers];
    for (int buffer : {kSendBuffer, kReceiveBuffer}) {
      bases[buffer] = {memory[buffer].data(), stride};
    }
    const tcpx::BlockTable blocks[tcpx::kBuffers] = {blocks_of(lengths), blocks_of(lengths), {}};
    loop.load(
        tcpx::compile(table.data(), steps.size(), blocks, chunk_bytes, links->settings().streams),
        bases);
    loop.reserve(iterations);
  }

  // Bytes of a receive slot that are not as `sender` sent them; those behind it must be poison.
  uint64_t wrong(uint64_t slot, int sender, uint64_t from, uint64_t to) const {
    uint64_t count = 0;
    const uint8_t* data = memory[kReceiveBuffer].data() + slot * stride;
    for (uint64_t i = from; i < to; ++i) count += data[i] != sent_byte(sender, slot, i);
    for (uint64_t i = bytes; i < stride; ++i) count += data[i] != kPoison;
    return count;
  }

  int rank;
  std::unique_ptr<tcpx::RawLinks> links;
  tcpx::RawLoop loop;
  uint64_t bytes = 0;
  uint64_t stride = 0;
  std::vector<uint8_t> memory[2];
};

struct RawPair {
  explicit RawPair(const tcpx::RawSettings& settings = on_lo(), int spins = kSpins,
                   bool back = true)
      : ranks{{0, settings, spins}, {1, settings, spins}} {
    const std::vector<std::string> addresses = {ranks[0].links->listen(), ranks[1].links->listen()};
    using Neighbours = std::vector<tcpx::RawLinks::Neighbour>;
    const Neighbours to_1 = {{1, 0}}, to_0 = {{0, 0}}, none;
    run_two([&] { ranks[0].links->establish(0, addresses, to_1, back ? to_1 : none, 5.0); },
            [&] { ranks[1].links->establish(1, addresses, back ? to_0 : none, to_0, 5.0); });
  }

  // Both ranks run a batch; whether both went well.
  bool run(const tcpx::BatchPlan& plan) {
    bool well[2] = {};
    run_two([&] { well[0] = ranks[0].loop.run(plan); }, [&] { well[1] = ranks[1].loop.run(plan); });
    return well[0] && well[1];
  }

  RawRank ranks[2];
};
