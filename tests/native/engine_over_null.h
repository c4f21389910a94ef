// The engine of one rank over the null plugin, for programs that measure what it costs: receives
// and sends in turn, to and from a peer that answers at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/connections.h"
#include "engine/program.h"
#include "engine/timed_loop.h"
#include "memory/buffer.h"
#include "net/library.h"

namespace tcpx {

// A row: steps that receive (even) and send (odd), each of `chunks` chunks of `chunk_bytes`.
struct NullRow {
  int steps;
  int channels;
  uint64_t chunks;
  uint64_t chunk_bytes;
  uint64_t iterations;

  uint64_t chunks_in_all() const { return iterations * steps * chunks; }
};

class EngineOverNull {
 public:
  EngineOverNull(const char* path, const NullRow& row)
      : row_(row),
        plugin_(path),
        connections_(initialised(plugin_).net(), 0),
        send_(step_bytes() * row.steps / 2),
        receive_(step_bytes() * row.steps / 2),
        driver_(plugin_.net(), connect(), limits()) {}

  // With dependencies chunk c of a step waits for chunk c of the step before, as where a message is
  // passed on.
  void load(bool depend) {
    // One slot: nothing is moved, so iterations may share it.
    const SlotBase bases[kBuffers] = {{send_.data(), 0}, {receive_.data(), 0}, {}};
    BlockTable blocks[kBuffers];
    for (int s = 0; s < row_.steps / 2; ++s) {
      for (int buffer : {0, 1}) {
        blocks[buffer].offsets.push_back(s * step_bytes());
        blocks[buffer].lengths.push_back(step_bytes());
      }
    }
    const auto table = steps(depend);
    driver_.load(compile(table.data(), row_.steps, blocks, row_.chunk_bytes, row_.channels), bases);
    driver_.reserve(row_.iterations);
  }

  // One batch; a fault ends the program.
  double ns_a_chunk() {
    BatchPlan plan;
    plan.iterations = row_.iterations;
    plan.stall_ns = 1'000'000'000;
    if (!driver_.run(plan)) {
      fprintf(stderr, "the batch failed\n");
      exit(1);
    }
    const BatchStamps& stamps = driver_.stamps();
    return double(stamps.end[row_.iterations - 1] - stamps.start) / row_.chunks_in_all();
  }

 private:
  static constexpr int kPeer = 1;

  static Plugin& initialised(Plugin& plugin) {
    plugin.init();
    return plugin;
  }

  static TimedLoopLimits limits() {
    TimedLoopLimits limits;
    limits.spins_before_yield = 100;
    return limits;
  }

  uint64_t step_bytes() const { return row_.chunks * row_.chunk_bytes; }

  Connections& connect() {
    for (int channel = 0; channel < row_.channels; ++channel) {
      const auto handle = connections_.listen(kPeer, 0, channel);
      connections_.add_send(kPeer, 0, channel, handle.data());
    }
    connections_.establish(5.0);
    connections_.register_buffer(0, send_.data(), send_.bytes(), kNetPtrHost);
    connections_.register_buffer(1, receive_.data(), receive_.bytes(), kNetPtrHost);
    return connections_;
  }

  std::vector<int32_t> steps(bool depend) const {
    std::vector<int32_t> table;
    for (int s = 0; s < row_.steps; ++s) {
      const bool sends = s % 2 == 1;
      const int pred = depend ? s - 1 : -1;
      const int block = s / 2;
      const int32_t row[kStepColumns] = {sends ? 0 : 1,
                                         kPeer,
                                         0,
                                         sends ? 0 : -1,
                                         sends ? block : -1,
                                         sends ? -1 : 1,
                                         sends ? -1 : block,
                                         1,
                                         pred,
                                         0,
                                         -1,
                                         0};
      table.insert(table.end(), row, row + kStepColumns);
    }
    return table;
  }

  const NullRow row_;
  Plugin plugin_;
  Connections connections_;
  HostBuffer send_;
  HostBuffer receive_;
  TimedLoop driver_;
};

}  // namespace tcpx
