// Cutting a schedule into chunks.
#include <set>

#include "engine/connections.h"
#include "rig.h"

using namespace tcpx;

namespace {

Program compiled(const Steps& steps, const std::vector<uint64_t>& lengths, uint64_t chunk_bytes,
                 int channels) {
  const BlockTable blocks[kBuffers] = {blocks_of(lengths), blocks_of(lengths), {}};
  return compile(steps.data(), steps.size(), blocks, chunk_bytes, channels);
}

std::vector<Wait> waits_of(const Program& program, const ChunkOp& op) {
  const auto first = program.waits.begin() + op.first_wait;
  return {first, first + op.n_waits};
}

}  // namespace

TEST(chunks_cover_a_message_once_in_order) {
  for (const uint64_t bytes : {0, 1, 99, 100, 101, 1000, 1001, 123'457}) {
    for (const int channels : {1, 2, 3, 7}) {
      const Program p = compiled(Steps().send(0), {bytes}, 100, channels);
      const uint64_t chunks = std::max<uint64_t>(1, (bytes + 99) / 100);
      CHECK_EQ(p.ops[0][0], chunks);
      CHECK_EQ(p.ops[0][1] + p.ops[0][2], 0u);
      std::set<uint32_t> seen;
      uint64_t total = 0;
      for (const ChunkQueue& queue : p.queues) {
        uint32_t last = 0;
        for (const ChunkOp& op : queue.ops) {
          CHECK(seen.insert(op.chunk).second);
          CHECK_EQ(op.offset, op.chunk * 100u);
          CHECK_LE(op.bytes, 100u);
          CHECK(op.bytes > 0 || bytes == 0);
          CHECK_EQ(op.chunk % channels, static_cast<uint32_t>(queue.channel));
          CHECK(seen.size() == 1 || op.chunk >= last);
          last = op.chunk;
          total += op.bytes;
        }
      }
      CHECK_EQ(seen.size(), chunks);
      CHECK_EQ(total, bytes);
    }
  }
}

TEST(more_than_ten_thousand_chunks_are_as_good_as_few) {
  const Program p = compiled(Steps().receive(0), {100'001}, 4, 2);
  CHECK_EQ(p.ops[0][1], 25'001u);
  CHECK_EQ(p.queues[0].ops.size(), 12'501u);
  CHECK_EQ(p.queues[1].ops.size(), 12'500u);
  CHECK_EQ(p.queues[0].ops.back().offset, 100'000u);
  CHECK_EQ(p.queues[0].ops.back().bytes, 1u);
}

TEST(offsets_beyond_32_bits_are_whole) {
  const uint64_t gib = uint64_t{1} << 30;
  const Program p = compiled(Steps().send(1), {5 * gib, 3 * gib}, 2 << 20, 1);
  CHECK_EQ(p.queues[0].ops.size(), 1536u);
  CHECK_EQ(p.queues[0].ops.front().offset, 5 * gib);
  CHECK_EQ(p.queues[0].ops.back().offset, 8 * gib - (2 << 20));
}

TEST(consecutive_blocks_are_one_message) {
  Steps steps;
  steps.row({0, kPeer, 0, kSendBuffer, 1, -1, -1, 2, -1, 0, -1, 0});
  const Program p = compiled(steps, {10, 20, 30, 40}, 64, 1);
  CHECK_EQ(p.queues[0].ops.size(), 1u);
  CHECK_EQ(p.queues[0].ops[0].offset, 10u);
  CHECK_EQ(p.queues[0].ops[0].bytes, 50u);
}

TEST(a_queue_holds_its_steps_in_the_order_of_the_schedule) {
  const Program p =
      compiled(Steps().send(1).receive(0).send(0).send(1, -1, kChunk, 1), {30, 40}, 10, 2);
  CHECK_EQ(p.queues.size(), 6u);  // send lane 0, receive, send lane 1, each on two channels
  CHECK_EQ(p.ops[0][0], 4u + 3 + 4);
  CHECK_EQ(p.ops[0][1], 3u);
  const ChunkQueue& first = p.queues[0];
  CHECK_EQ(first.kind, FlowKind::kSend);
  CHECK_EQ(first.ops.size(), 4u);
  const uint64_t offsets[] = {30, 50, 0, 20};  // chunks 0 and 2 of block 1, then of block 0
  for (int i = 0; i < 4; ++i) CHECK_EQ(first.ops[i].offset, offsets[i]);
}

TEST(a_chunk_waits_for_one_number_of_its_own_channel) {
  const Program p = compiled(Steps().receive(0).send(0, 0, kChunk), {50}, 10, 2);
  for (const ChunkQueue& queue : p.queues) {
    for (const ChunkOp& op : queue.ops) {
      const auto waits = waits_of(p, op);
      if (queue.kind == FlowKind::kReceive) {
        CHECK(waits.empty());
        continue;
      }
      CHECK_EQ(waits.size(), 1u);
      const auto& receives = p.queues[queue.channel].ops;
      CHECK_EQ(waits[0].counter, receives[0].counter);
      CHECK_EQ(waits[0].need, op.chunk / 2 + 1);
      CHECK_EQ(waits[0].per_iteration, receives.size());
    }
  }
}

TEST(a_whole_step_is_waited_for_on_each_channel_that_it_uses) {
  const Program p = compiled(Steps().receive(0).send(1, 0, kWhole), {50, 10}, 10, 8);
  const ChunkOp& send = p.queues.back().ops[0];
  const auto waits = waits_of(p, send);
  CHECK_EQ(waits.size(), 5u);
  std::set<uint32_t> counters;
  for (const Wait& wait : waits) {
    counters.insert(wait.counter);
    CHECK_EQ(wait.need, 1u);
    CHECK_EQ(wait.per_iteration, 1u);
  }
  CHECK_EQ(counters.size(), 5u);
}

TEST(rows_that_cannot_be_are_named) {
  const auto refused = [](const Steps& steps, const char* part) {
    CHECK_THROWS(compiled(steps, {50, 60}, 10, 2), std::invalid_argument, part);
  };
  refused(Steps().send(0).row({6, 1, 0, 0, 0, 1, 0, 1, -1, 0, -1, 0}),
          "row 1: unknown operation 6");
  refused(Steps().send(2), "row 0: blocks 2+1 of 2");
  refused(Steps().send(-1), "row 0: blocks -1+1 of 2");
  refused(Steps().row({0, 1, 0, 0, 1, -1, -1, 2, -1, 0, -1, 0}), "row 0: blocks 1+2 of 2");
  refused(Steps().row({0, 1, 0, 0, 1, -1, -1, 0, -1, 0, -1, 0}), "row 0: blocks 1+0 of 2");
  refused(Steps().row({0, 1, 0, 3, 0, -1, -1, 1, -1, 0, -1, 0}), "row 0: no buffer 3");
  refused(Steps().row({1, 1, 0, -1, -1, -1, 0, 1, -1, 0, -1, 0}), "row 0: no buffer -1");
  refused(Steps().receive(0).send(0, 1), "row 1: waits for a later row 1");
  refused(Steps().receive(0).send(1, 0, kChunk),
          "row 1: waits chunk by chunk for row 0 of another length");
  refused(Steps().receive(0).send(0, 0, 2), "row 1: unknown way to wait 2");
  refused(Steps().copy(0, 1), "row 0: source and destination have unequal lengths");
}

TEST(receives_that_are_reduced_are_in_the_queue_of_the_others) {
  Steps steps;
  steps.receive(0).row({3, kPeer, 0, kSendBuffer, 1, kReceiveBuffer, 0, 1, 0, kChunk, -1, 0});
  steps.row({4, -1, 0, kReceiveBuffer, 0, kSendBuffer, 1, 1, 1, kChunk, -1, 0}).copy(1, 0);
  const BlockTable blocks[kBuffers] = {blocks_of({80, 80}), blocks_of({80, 80}), {}};
  const Program p = compile(steps.data(), steps.size(), blocks, 40, 1, {kDouble, kAvg, 2});
  CHECK_EQ(p.arithmetic.type, kDouble);
  CHECK_EQ(p.queues.size(), 2u);
  CHECK_EQ(p.ops[0][1], 4u);
  CHECK_EQ(p.ops[0][2], 4u);
  const auto& in = p.queues[0].ops;
  CHECK_EQ(p.queues[0].kind, FlowKind::kReceive);
  CHECK_EQ(in[1].work, ChunkWork::kMove);
  CHECK_EQ(in[2].work, ChunkWork::kReduce);
  CHECK_EQ(in[3].source, 120u);
  CHECK_EQ(in[3].source_buffer, uint8_t{kSendBuffer});
  CHECK_EQ(in[3].offset, 40u);
  CHECK_EQ(in[3].buffer, uint8_t{kReceiveBuffer});
  CHECK_EQ(p.queues[1].ops[0].work, ChunkWork::kScale);
  CHECK_EQ(p.queues[1].ops[2].work, ChunkWork::kMove);
}

TEST(steps_that_compute_have_whole_elements_in_each_chunk) {
  const auto refused = [](const std::vector<uint64_t>& lengths, uint64_t chunk, int op) {
    Steps steps;
    steps.row({op, op == 3 ? kPeer : -1, 0, kSendBuffer, 1, kReceiveBuffer, 1, 1, -1, 0, -1, 0});
    const BlockTable blocks[kBuffers] = {blocks_of(lengths), blocks_of(lengths), {}};
    compile(steps.data(), 1, blocks, chunk, 1, {kFloat, kSum, 1});
  };
  for (const int op : {3, 4}) {
    refused({8, 80}, 40, op);
    CHECK_THROWS(refused({8, 80}, 42, op), std::invalid_argument, "in chunks of 42");
    CHECK_THROWS(refused({8, 78}, 40, op), std::invalid_argument, "found 78 bytes");
    CHECK_THROWS(refused({6, 80}, 40, op), std::invalid_argument, "at offset 6");
  }
}

CHECK_MAIN()
