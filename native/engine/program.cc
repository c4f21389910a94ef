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
enum Op {
  kOpSend = 0,
  kOpReceive = 1,
  kOpCopy = 2,
  kOpReceiveReduce = 3,
  kOpScale = 4,
  kOpPause = 5,
};
enum WaitKind { kWaitChunk = 0, kWaitWhole = 1 };

constexpr uint64_t kPauseNs = 1000;  // of one in the table's column of blocks

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
    case kOpPause:
      return {FlowKind::kCopy, ChunkWork::kPause, false, false};
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

// One alone is done when the rank's receives are: there is nobody to tell it from, but in other
// turns.
void number_sources(Program& program) {
  std::map<std::pair<int, int>, int> number_of;  // of (lane, peer)
  for (const ChunkQueue& queue : program.queues) {
    if (queue.kind == FlowKind::kReceive) number_of[{queue.lane, queue.peer}] = 0;
  }
  if (number_of.size() < 2 && program.turns() < 2) return;
  for (auto& [source, number] : number_of) {
    number = static_cast<int>(program.sources.size());
    program.sources.push_back(source.second);
    program.source_lanes.push_back(source.first);
  }
  for (ChunkQueue& queue : program.queues) {
    if (queue.kind == FlowKind::kReceive) queue.source = number_of[{queue.lane, queue.peer}];
  }
}

// The program under way: what turns have in common is the queues, and nothing else.
class Compiler {
 public:
  Compiler(uint64_t chunk_bytes, int channels, const Arithmetic& arithmetic)
      : chunk_bytes_(chunk_bytes), channels_(channels) {
    program_.arithmetic = arithmetic;
  }

  void add(const Turn& turn) {
    turn_ = &turn;
    first_counter_ = program_.counters;
    program_.counters += static_cast<uint32_t>(turn.steps * channels_);
    program_.ops.emplace_back();
    for (ChunkQueue& queue : program_.queues) begin_turn(queue);
    step_chunks_.resize(turn.steps);
    step_bytes_.resize(turn.steps);
    for (size_t row = 0; row < turn.steps; ++row) add_step(row);
    for (ChunkQueue& queue : program_.queues) {
      if (queue.ops.size() > queue.begins.back()) queue.ops.back().last = true;
    }
  }

  Program finish() {
    for (ChunkQueue& queue : program_.queues) begin_turn(queue);
    number_sources(program_);
    return std::move(program_);
  }

 private:
  static void begin_turn(ChunkQueue& queue) {
    queue.begins.push_back(static_cast<uint32_t>(queue.ops.size()));
  }

  uint32_t counter_of(size_t step, int channel) const {
    return first_counter_ + static_cast<uint32_t>(step * channels_ + channel);
  }

  void add_step(size_t row) {
    const int32_t* step = turn_->table + row * kStepColumns;
    const Form form = form_of(step[kOp], row);
    const FlowKind kind = form.kind;
    Range from{0, 0};
    Range to{0, 0};
    if (form.reads) {
      from = range_of(turn_->blocks, step[kSrcBuffer], step[kSrcBlock], step[kBlocks], row);
    }
    if (form.writes) {
      to = range_of(turn_->blocks, step[kDstBuffer], step[kDstBlock], step[kBlocks], row);
    }
    if (form.reads && form.writes && from.bytes != to.bytes) {
      refuse(row, "source and destination have unequal lengths");
    }
    if (form.work == ChunkWork::kReduce || form.work == ChunkWork::kScale) {
      for (const Range& range : {from, to}) {
        require_aligned_elements(range, chunk_bytes_, program_.arithmetic.type, row);
      }
    }
    const uint64_t bytes = kind == FlowKind::kReceive ? to.bytes : from.bytes;
    const uint32_t chunks = chunks_of(bytes, chunk_bytes_);
    step_bytes_[row] = bytes;
    step_chunks_[row] = chunks;
    for (uint32_t c = 0; c < chunks; ++c) {
      const int channel = static_cast<int>(c % channels_);
      ChunkOp chunk{};
      const uint64_t at = c * chunk_bytes_;
      chunk.bytes = static_cast<uint32_t>(std::min(chunk_bytes_, bytes - std::min(at, bytes)));
      chunk.step = static_cast<uint32_t>(row);
      chunk.chunk = c;
      chunk.offset = (kind == FlowKind::kSend ? from.offset : to.offset) + at;
      chunk.source = from.offset + at;
      chunk.buffer = static_cast<uint8_t>(
          std::max(kind == FlowKind::kSend ? step[kSrcBuffer] : step[kDstBuffer], 0));
      chunk.source_buffer = std::max(step[kSrcBuffer], 0) & 0xf;
      chunk.work = form.work;
      if (form.work == ChunkWork::kPause) chunk.source = step[kBlocks] * kPauseNs;
      chunk.counter = counter_of(row, channel);
      add_waits(row, &chunk);
      const int peer = kind == FlowKind::kCopy ? -1 : step[kPeer];
      const int lane = kind == FlowKind::kCopy ? 0 : step[kLane];
      queue_of(kind, peer, lane, channel).ops.push_back(chunk);
      ++program_.ops.back()[static_cast<int>(kind)];
    }
  }

  void add_waits(size_t row, ChunkOp* chunk) {
    const int32_t* step = turn_->table + row * kStepColumns;
    const int channel = static_cast<int>(chunk->chunk % channels_);
    std::vector<Wait>& waits = program_.waits;
    chunk->first_wait = static_cast<uint32_t>(waits.size());
    for (int w = 0; w < 2; ++w) {
      const int pred = step[w == 0 ? kPred0 : kPred1];
      const int how = step[w == 0 ? kWait0 : kWait1];
      if (pred < 0) continue;
      if (size_t(pred) >= row) refuse(row, "waits for a later row " + std::to_string(pred));
      if (how == kWaitWhole) {
        for (int ch = 0; ch < channels_; ++ch) {
          const uint32_t share = share_of(step_chunks_[pred], ch, channels_);
          if (share > 0) waits.push_back({counter_of(pred, ch), share, share});
        }
      } else if (how != kWaitChunk) {
        refuse(row, "unknown way to wait " + std::to_string(how));
      } else if (step_bytes_[pred] == step_bytes_[row]) {
        waits.push_back({counter_of(pred, channel), chunk->chunk / channels_ + 1,
                         share_of(step_chunks_[row], channel, channels_)});
      } else {
        refuse(row, "waits chunk by chunk for row " + std::to_string(pred) + " of another length");
      }
    }
    chunk->n_waits = static_cast<uint16_t>(waits.size() - chunk->first_wait);
  }

  ChunkQueue& queue_of(FlowKind kind, int peer, int lane, int channel) {
    const auto key = std::make_tuple(static_cast<int>(kind), peer, lane, channel);
    const auto [found, is_new] = queues_.emplace(key, program_.queues.size());
    if (is_new) {
      // In the turns before it had nothing.
      program_.queues.push_back({kind, peer, lane, channel, {}, {}});
      program_.queues.back().begins.resize(program_.turns(), 0);
    }
    return program_.queues[found->second];
  }

  const uint64_t chunk_bytes_;
  const int channels_;
  Program program_;
  std::map<std::tuple<int, int, int, int>, size_t> queues_;  // their places
  // Of the turn under way.
  const Turn* turn_ = nullptr;
  uint32_t first_counter_ = 0;
  std::vector<uint32_t> step_chunks_;
  std::vector<uint64_t> step_bytes_;
};

}  // namespace

Program compile(const std::vector<Turn>& turns, uint64_t chunk_bytes, int channels,
                const Arithmetic& arithmetic) {
  Compiler compiler(chunk_bytes, channels, arithmetic);
  for (const Turn& turn : turns) compiler.add(turn);
  return compiler.finish();
}

}  // namespace tcpx
