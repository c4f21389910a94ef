// The traced loop: each step of the last chunks has its time, in an order that can be.
#include <map>

#include "engine/traced_loop.h"
#include "fake_gpu.h"
#include "memory/cuda_slots.h"
#include "rig.h"
#include "scattering_net.h"
#include "unpack/cuda_unpacker.h"

using namespace tcpx;

namespace {

constexpr size_t kMost = 8;

BatchPlan batch_of(uint64_t iterations) {
  BatchPlan plan;
  plan.iterations = iterations;
  plan.stall_ns = 10'000'000'000;
  return plan;
}

// What there is of the steps of a chunk never goes backwards.
void check_causal(const ChunkTrace& chunk) {
  int64_t before = 0;
  for (const int64_t at :
       {chunk.post, chunk.posted, chunk.done, chunk.launched, chunk.unpacked, chunk.finished}) {
    if (at < 0) continue;
    CHECK(at >= before);
    before = at;
  }
  CHECK(chunk.post > 0);
  CHECK(chunk.finished > 0);
}

void load(TimedLoop& loop, Rig& rig, const Steps& steps, int channels) {
  rig.load(steps, {64}, 16, 32);  // registers
  const BlockTable blocks[kBuffers] = {blocks_of({64}), blocks_of({64}), {}};
  loop.load(compile(steps.data(), steps.size(), blocks, 16, channels), rig.bases);
  loop.reserve(32);
}

}  // namespace

TEST(the_last_chunks_of_a_batch_are_kept) {
  Rig rig;
  TracedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr, kMost);
  load(loop, rig, Steps().receive(0).send(0), 2);
  CHECK(loop.run(batch_of(10)));  // 4 chunks each way, an iteration
  const auto kept = loop.trace();
  CHECK_EQ(kept.size(), kMost);
  for (const ChunkTrace& chunk : kept) {
    check_causal(chunk);
    CHECK(chunk.iteration >= 8);
    CHECK_EQ(chunk.bytes, 16);
    CHECK_EQ(chunk.channel, chunk.chunk % 2);
    CHECK_EQ(chunk.comm, reinterpret_cast<int64_t>(
                             rig.comm(chunk.kind == 0 ? Direction::kSend : Direction::kReceive,
                                      static_cast<int>(chunk.channel))));
    CHECK(chunk.done > 0);
    CHECK_EQ(chunk.unpacked, -1);
  }
}

TEST(messages_of_a_comm_are_counted_over_batches) {
  Rig rig(1);
  TracedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr, kMost);
  load(loop, rig, Steps().send(0), 1);
  for (const int64_t before : {0, 4}) {
    CHECK(loop.run(batch_of(1)));
    const auto kept = loop.trace();
    CHECK_EQ(kept.size(), 4u);
    for (size_t i = 0; i < kept.size(); ++i) {
      CHECK_EQ(kept[i].message, before + static_cast<int64_t>(i));
      CHECK_EQ(kept[i].iteration, 0);
    }
  }
}

TEST(a_loop_that_is_not_traced_keeps_nothing) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {64}, 16, 4);
  CHECK(rig.run(4));
  CHECK(rig.driver.trace().empty());
}

TEST(what_a_gpu_unpacks_is_told_to_and_then_in_place) {
  ScatteringNet net;
  Connections connections(net, 0, 0);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  CudaUnpacker copier(0, UnpackMode::kCopies);
  TracedLoop loop(net, connections, {}, &unpacker, &copier, 64);
  const auto handle = connections.listen(kPeer, 0, 0);
  connections.add_send(kPeer, 0, 0, handle.data());
  connections.establish(5.0);
  GpuMemory memory(test_gpu(), 65536);
  auto* data = reinterpret_cast<uint8_t*>(memory.address());
  SlotBase bases[kBuffers] = {};
  for (const int buffer : {kSendBuffer, kReceiveBuffer}) {
    connections.register_buffer(buffer, data, 65536, kNetPtrCuda);
    bases[buffer] = {data, 8192};
  }
  const BlockTable blocks[kBuffers] = {blocks_of({4096}), blocks_of({4096}), {}};
  const Steps steps = Steps().receive(0).copy(0, 0, 0, kWhole);
  loop.load(compile(steps.data(), steps.size(), blocks, 2048, 1), bases);
  loop.reserve(4);
  CHECK(loop.run(batch_of(4)));
  const auto kept = loop.trace();
  CHECK_EQ(kept.size(), 16u);
  for (const ChunkTrace& chunk : kept) {
    check_causal(chunk);
    CHECK(chunk.launched > 0);
    CHECK(chunk.unpacked >= chunk.launched);
    CHECK_EQ(chunk.done > 0, chunk.kind == static_cast<int64_t>(FlowKind::kReceive));
    CHECK_EQ(chunk.comm == 0, chunk.kind == static_cast<int64_t>(FlowKind::kCopy));
  }
}

CHECK_MAIN()
