// What the engine itself costs: nanoseconds a chunk over a plugin whose calls complete at once.
//
// usage: bench_engine PATH/libnccl-net-null.so [runs]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "engine/clock.h"
#include "engine/connections.h"
#include "engine/drive.h"
#include "engine/program.h"
#include "memory/buffer.h"
#include "net/library.h"

namespace {

using namespace tcpx;

constexpr int kPeer = 1;
constexpr int kChannels = 2;
constexpr int kSteps = 8;
constexpr int kChunksAStep = 128;
constexpr uint64_t kChunkBytes = 4096;
constexpr uint64_t kIterations = 200;

// Receives and sends in turn. With dependencies chunk c of a step waits for chunk c of the step
// before, as where a message is passed on.
std::vector<int32_t> steps(bool depend) {
  std::vector<int32_t> table;
  for (int s = 0; s < kSteps; ++s) {
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

double ns_a_chunk(Driver& driver, bool depend, const BlockTable* blocks, const SlotBase* bases,
                  int runs) {
  const auto table = steps(depend);
  driver.load(compile(table.data(), kSteps, blocks, kChunkBytes, kChannels), bases);
  driver.reserve(kIterations);
  BatchPlan plan;
  plan.iterations = kIterations;
  plan.stall_ns = 1'000'000'000;
  std::vector<double> results;
  for (int run = 0; run < runs; ++run) {
    if (!driver.run(plan)) {
      fprintf(stderr, "the batch failed\n");
      exit(1);
    }
    const int64_t ns = driver.stamps().end[kIterations - 1] - driver.stamps().start;
    results.push_back(double(ns) / (kIterations * kSteps * kChunksAStep));
  }
  std::sort(results.begin(), results.end());
  return results[results.size() / 2];
}

void measure(const char* path, int runs) {
  Plugin plugin(path);
  plugin.init();
  Connections connections(plugin.net(), 0);
  for (int channel = 0; channel < kChannels; ++channel) {
    const auto handle = connections.listen(kPeer, 0, channel);
    connections.add_send(kPeer, 0, channel, handle.data());
  }
  connections.establish(5.0);

  // One slot: nothing is moved, so iterations may share it.
  const size_t block_bytes = kChunksAStep * kChunkBytes;
  HostBuffer send(block_bytes * kSteps / 2);
  HostBuffer receive(block_bytes * kSteps / 2);
  connections.register_buffer(0, send.data(), send.bytes(), kNetPtrHost);
  connections.register_buffer(1, receive.data(), receive.bytes(), kNetPtrHost);
  const SlotBase bases[kBuffers] = {{send.data(), 0}, {receive.data(), 0}, {}};
  BlockTable blocks[kBuffers];
  for (int s = 0; s < kSteps / 2; ++s) {
    for (int buffer : {0, 1}) {
      blocks[buffer].offsets.push_back(s * block_bytes);
      blocks[buffer].lengths.push_back(block_bytes);
    }
  }

  DriveLimits limits;
  limits.spins_before_yield = 100;
  Driver driver(plugin.net(), connections, limits);
  ns_a_chunk(driver, false, blocks, bases, 2);  // warm
  const double independent = ns_a_chunk(driver, false, blocks, bases, runs);
  const double dependent = ns_a_chunk(driver, true, blocks, bases, runs);
  printf("independent %.1f ns/chunk, dependent %.1f ns/chunk, ratio %.2f\n", independent, dependent,
         dependent / independent);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: %s PATH/libnccl-net-null.so [runs]\n", arguments[0]);
    return 2;
  }
  try {
    measure(arguments[1], count > 2 ? std::max(1, atoi(arguments[2])) : 15);
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
