// A schedule cut into chunks for one row: what the timed loop walks, in queues that it only reads.
//
// The rows of a schedule (see tcpx_mpi/schedule/table.py, which documents the form) name blocks;
// the block tables of a row give them bytes. Chunk c of a step travels on channel c % channels, so
// that "chunk c waits for chunk c" stays on one channel, and because every queue is FIFO a
// dependency is one comparison of a counter with a number known beforehand.
//
// Iterations may differ: a program then has several turns, and slot k has turn k % turns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduce/element.h"

namespace tcpx {

constexpr int kBuffers = 3;  // send, receive, scratch

// kCopy: all that a rank does within its own memory.
enum class FlowKind : uint8_t { kSend = 0, kReceive = 1, kCopy = 2 };

// What becomes of a chunk's bytes on their way to where they belong.
enum class ChunkWork : uint8_t {
  kMove = 0,    // nothing
  kReduce = 1,  // of a receive: reduced with the local operand, and the result is what arrives
  kScale = 2,   // of a copy
  kPause = 3,   // of a copy: nothing moves, and it is complete after a while
};

// One comparison: the counter of a (step, channel) against a number known beforehand. Chunks of
// later iterations may run ahead on another channel, never on the same one: so a step that waits
// for a whole predecessor compares once a channel.
struct Wait {
  uint32_t counter;        // index into the counters of the row
  uint32_t need;           // chunks of this iteration that must be complete
  uint32_t per_iteration;  // chunks that one iteration of its turn adds to the counter
};

struct ChunkOp {
  uint64_t offset;  // in the slot: where a send reads, where a receive or copy writes
  uint64_t source;  // in the slot: where a copy reads, or where the local operand of a receive is;
                    // of a pause: how many nanoseconds
  uint32_t bytes;
  uint32_t step;
  uint32_t chunk;
  uint32_t counter;     // bumped on completion: chunks of this step on this channel
  uint32_t first_wait;  // in Program::waits
  uint16_t n_waits;
  uint8_t buffer;
  uint8_t source_buffer : 4;
  ChunkWork work : 3;
  bool last : 1;  // of its queue in an iteration
};
static_assert(sizeof(ChunkOp) == 40, "the timed loop walks them");

struct ChunkQueue {
  FlowKind kind;
  int peer;
  int lane;
  int channel;
  std::vector<ChunkOp> ops;      // of one iteration of each turn, in the order of the schedule
  std::vector<uint32_t> begins;  // where a turn's are in them; the last is their number
  int source = -1;               // receives, where sources are told apart: its index in them
};

struct BlockTable {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
};

// What an iteration does: `table` has `steps` rows of kStepColumns ints, `blocks` one a buffer.
constexpr int kStepColumns = 12;
struct Turn {
  const int32_t* table;
  size_t steps;
  const BlockTable* blocks;
};

// Chunks of an iteration, by FlowKind.
using OpCounts = std::array<uint32_t, 3>;

struct Program {
  std::vector<ChunkQueue> queues;
  std::vector<Wait> waits;
  Arithmetic arithmetic;  // of all steps that compute
  // Where receives come from, told apart if there are several: by lane, then peer.
  std::vector<int> sources;       // the peer of each
  std::vector<int> source_lanes;  // its lane
  uint32_t counters = 0;
  std::vector<OpCounts> ops;  // of each turn
  size_t turns() const { return ops.size(); }
};

// Whether everything that a chunk of an iteration waits for is complete; `round` says how many
// iterations of its turn came before.
inline bool waits_met(const Program& program, const uint64_t* counters, const ChunkOp& op,
                      uint64_t round) {
  const Wait* waits = program.waits.data() + op.first_wait;
  for (uint32_t w = 0; w < op.n_waits; ++w) {
    const uint64_t need = round * waits[w].per_iteration + waits[w].need;
    // Another thread of the rank may count there.
    if (__atomic_load_n(&counters[waits[w].counter], __ATOMIC_ACQUIRE) < need) return false;
  }
  return true;
}

// Throws std::invalid_argument naming the row that cannot be. Of steps that compute, chunks are
// whole elements at multiples of an element's size.
Program compile(const std::vector<Turn>& turns, uint64_t chunk_bytes, int channels,
                const Arithmetic& arithmetic = {});
inline Program compile(const int32_t* table, size_t steps, const BlockTable* blocks,
                       uint64_t chunk_bytes, int channels, const Arithmetic& arithmetic = {}) {
  return compile({{table, steps, blocks}}, chunk_bytes, channels, arithmetic);
}

}  // namespace tcpx
