#include "engine/program.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace tcpx {
namespace {

enum Column {
  kOp,
  kPeer,
  kLane,
  kSrcBuffer,
  kSrcBlock,
  kDstBuffer,
  kDstBlock,
  kBlocks,
  kPred0,
  kWait0,
  kPred1,
  kWait1,
};
enum Op { kOpSend = 0, kOpReceive = 1, kOpCopy = 2, kOpReceiveReduce = 3, kOpScale = 4 };
enum WaitKind { kWaitChunk = 0, kWaitWhole = 1 };

struct Range {
  uint64_t offset;
  uint64_t bytes;
};

[[noreturn]] void refuse(size_t row, const std::string& why) {
  throw std::invalid_argument("schedule row " + std::to_string(row) + ": " + why);
}

Range range_of(const BlockTable* blocks, int buffer, int block, int count, size_t row) {
  if (buffer < 0 || buffer >= kBuffers) refuse(row, "no buffer " + std::to_string(buffer));
  const BlockTable& table = blocks[buffer];
  if (block < 0 || count < 1 || size_t(block) + size_t(count) > table.offsets.size()) {
    refuse(row, "blocks " + std::to_string(block) + "+" + std::to_string(count) + " of " +
                    std::to_string(table.offsets.size()));
  }
  const size_t last = size_t(block) + size_t(count) - 1;
  return {table.offsets[block], table.offsets[last] + table.lengths[last] - table.offsets[block]};
}

// What an operation is to its flow. Receives of a comm are one queue, whatever becomes of them.
struct Form {
  FlowKind kind;
  ChunkWork work;
  bool reads;   // a block of this rank
  bool writes;  // one
};

Form form_of(int op, size_t row) {
  switch (op) {
    case kOpSend:
      return {FlowKind::kSend, ChunkWork::kMove, true, false};
    case kOpReceive:
      return {FlowKind::kReceive, ChunkWork::kMove, false, true};
    case kOpCopy:
      return {FlowKind::kCopy, ChunkWork::kMove, true, true};
    case kOpReceiveReduce:
      return {FlowKind::kReceive, ChunkWork::kReduce, true, true};
    case kOpScale:
      return {FlowKind::kCopy, ChunkWork::kScale, true, true};
    default:
      refuse(row, "unknown operation " + std::to_string(op));
  }
}

void require_aligned_elements(const Range& range, uint64_t chunk_bytes, int type, size_t row) {
  const unsigned size = element_bytes(type);
  if (range.offset % size == 0 && range.bytes % size == 0 && chunk_bytes % size == 0) return;
  refuse(row, "computes with elements of " + std::to_string(size) + " bytes; found " +
                  std::to_string(range.bytes) + " bytes at offset " + std::to_string(range.offset) +
                  " in chunks of " + std::to_string(chunk_bytes));
}

uint32_t chunks_of(uint64_t bytes, uint64_t chunk_bytes) {
  return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + chunk_bytes - 1) / chunk_bytes);
}

// How many of `chunks` chunks travel on channel `channel`.
uint32_t share_of(uint32_t chunks, int channel, int channels) {
  return (chunks + channels - 1 - channel) / channels;
}

// One alone is done when the rank's receives are: there is nobody to tell it from.
void number_sources(Program& program) {
  std::map<std::pair<int, int>, int> number_of;  // of (lane, peer)
  for (const ChunkQueue& queue : program.queues) {
    if (queue.kind == FlowKind::kReceive) number_of[{queue.lane, queue.peer}] = 0;
  }
  if (number_of.size() < 2) return;
  for (auto& [source, number] : number_of) {
    number = static_cast<int>(program.sources.size());
    program.sources.push_back(source.second);
    program.source_lanes.push_back(source.first);
  }
  for (ChunkQueue& queue : program.queues) {
    if (queue.kind == FlowKind::kReceive) queue.source = number_of[{queue.lane, queue.peer}];
  }
}

}  // namespace

Program compile(const int32_t* table, size_t steps, const BlockTable* blocks, uint64_t chunk_bytes,
                int channels, const Arithmetic& arithmetic) {
  Program program;
  program.arithmetic = arithmetic;
  std::map<std::tuple<int, int, int, int>, size_t> queue_of;
  std::vector<uint32_t> step_chunks(steps);
  std::vector<uint64_t> step_bytes(steps);
  const auto counter_of = [&](size_t step, int channel) {
    return static_cast<uint32_t>(step * channels + channel);
  };
  program.counters = static_cast<uint32_t>(steps * channels);

  for (size_t row = 0; row < steps; ++row) {
    const int32_t* step = table + row * kStepColumns;
    const Form form = form_of(step[kOp], row);
    const FlowKind kind = form.kind;
    Range from{0, 0};
    Range to{0, 0};
    if (form.reads) {
      from = range_of(blocks, step[kSrcBuffer], step[kSrcBlock], step[kBlocks], row);
    }
    if (form.writes) {
      to = range_of(blocks, step[kDstBuffer], step[kDstBlock], step[kBlocks], row);
    }
    if (form.reads && form.writes && from.bytes != to.bytes) {
      refuse(row, "source and destination have unequal lengths");
    }
    if (form.work != ChunkWork::kMove) {
      for (const Range& range : {from, to}) {
        require_aligned_elements(range, chunk_bytes, arithmetic.type, row);
      }
    }
    const uint64_t bytes = kind == FlowKind::kReceive ? to.bytes : from.bytes;
    const uint32_t chunks = chunks_of(bytes, chunk_bytes);
    step_bytes[row] = bytes;
    step_chunks[row] = chunks;
    for (uint32_t c = 0; c < chunks; ++c) {
      const int channel = static_cast<int>(c % channels);
      ChunkOp chunk{};
      const uint64_t at = c * chunk_bytes;
      chunk.bytes = static_cast<uint32_t>(std::min(chunk_bytes, bytes - std::min(at, bytes)));
      chunk.step = static_cast<uint32_t>(row);
      chunk.chunk = c;
      chunk.offset = (kind == FlowKind::kSend ? from.offset : to.offset) + at;
      chunk.source = from.offset + at;
      chunk.buffer =
          static_cast<uint8_t>(kind == FlowKind::kSend ? step[kSrcBuffer] : step[kDstBuffer]);
      chunk.source_buffer = std::max(step[kSrcBuffer], 0) & 0xf;
      chunk.work = form.work;
      chunk.counter = counter_of(row, channel);
      chunk.first_wait = static_cast<uint32_t>(program.waits.size());
      for (int w = 0; w < 2; ++w) {
        const int pred = step[w == 0 ? kPred0 : kPred1];
        const int how = step[w == 0 ? kWait0 : kWait1];
        if (pred < 0) continue;
        if (size_t(pred) >= row) refuse(row, "waits for a later row " + std::to_string(pred));
        if (how == kWaitWhole) {
          for (int ch = 0; ch < channels && share_of(step_chunks[pred], ch, channels) > 0; ++ch) {
            const uint32_t share = share_of(step_chunks[pred], ch, channels);
            program.waits.push_back({counter_of(pred, ch), share, share});
          }
        } else if (how != kWaitChunk) {
          refuse(row, "unknown way to wait " + std::to_string(how));
        } else if (step_bytes[pred] == bytes) {
          program.waits.push_back(
              {counter_of(pred, channel), c / channels + 1, share_of(chunks, channel, channels)});
        } else {
          refuse(row,
                 "waits chunk by chunk for row " + std::to_string(pred) + " of another length");
        }
      }
      chunk.n_waits = static_cast<uint16_t>(program.waits.size() - chunk.first_wait);
      const int peer = kind == FlowKind::kCopy ? -1 : step[kPeer];
      const int lane = kind == FlowKind::kCopy ? 0 : step[kLane];
      const auto key = std::make_tuple(static_cast<int>(kind), peer, lane, channel);
      const auto [found, is_new] = queue_of.emplace(key, program.queues.size());
      if (is_new) program.queues.push_back({kind, peer, lane, channel, {}});
      program.queues[found->second].ops.push_back(chunk);
      ++program.ops[static_cast<int>(kind)];
    }
  }
  number_sources(program);
  return program;
}

}  // namespace tcpx
