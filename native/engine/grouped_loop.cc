#include "engine/grouped_loop.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace tcpx {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014): a number of 64 bits for each step of its state.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // Below `end`.
  uint64_t below(uint64_t end) { return next() % end; }
  void shuffle(int* values, int count) {
    for (int i = 0; i < count; ++i) values[i] = i;
    for (int i = count - 1; i > 0; --i) std::swap(values[i], values[below(i + 1)]);
  }

 private:
  uint64_t state_;
};

constexpr uint64_t kEmptyOf = 4;  // of so many pieces, one has no bytes

}  // namespace

GroupDraw draw_group(uint64_t seed, int channel, uint64_t number, uint32_t bytes, int receives) {
  Draws draws(Draws(seed + static_cast<uint64_t>(channel)).next() ^ Draws(number).next());
  GroupDraw draw;
  draw.begins[0] = 0;
  draw.begins[receives] = bytes;
  for (int i = 1; i < receives; ++i) {
    const bool empty = draws.below(kEmptyOf) == 0;
    draw.begins[i] =
        empty ? draw.begins[i - 1] : static_cast<uint32_t>(draws.below(uint64_t{bytes} + 1));
  }
  std::sort(draw.begins, draw.begins + receives);
  draws.shuffle(draw.order, receives);
  draws.shuffle(draw.tags, receives);
  for (int i = 0; i < receives; ++i) draw.tags[i] += kTag;
  return draw;
}

GroupedLoop::GroupedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits,
                         Unpacker* copier, int receives, uint64_t seed)
    : TimedLoop(net, connections, limits, nullptr, copier), receives_(receives), seed_(seed) {
  const int most = std::min({kMaxReceives, limits.window_send, limits.window_receive});
  if (receives < 1 || receives > most) {
    throw std::invalid_argument(std::to_string(receives) + " receives a request");
  }
}

void GroupedLoop::load(Program program, const SlotBase* buffers) {
  TimedLoop::load(std::move(program), buffers);
  drawn_.assign(flows_.size(), Drawn{});
  for (ScheduledFlow& flow : flows_) {
    if (flow.kind == FlowKind::kReceive) flow.window /= receives_;
  }
}

inline bool GroupedLoop::next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting) {
  if (!TimedLoop::next(flow, chunk, posting)) return false;
  if (flow.kind == FlowKind::kCopy) return true;
  Drawn& drawn = drawn_[index_of(flow)];
  GroupDraw& draw = drawn.draw;
  if (!drawn.open) {
    draw = draw_group(seed_, flow.channel, drawn.chunks, chunk.bytes, receives_);
    drawn.open = true;
  }
  if (flow.kind == FlowKind::kSend) {
    const int piece = draw.order[place_of(flow.posted)];
    chunk.data += draw.begins[piece];
    chunk.bytes = draw.begins[piece + 1] - draw.begins[piece];
    return true;
  }
  // By the place of each: when it is sent.
  int turns[kMaxReceives];
  for (int turn = 0; turn < receives_; ++turn) turns[draw.order[turn]] = turn;
  Group& group = drawn.groups[static_cast<size_t>(&chunk - flow.chunks)];
  group.n = receives_;
  for (int i = 0; i < receives_; ++i) {
    // There is room for the piece behind it, where that is there before: whoever writes more than
    // was sent spoils it.
    const bool reaches = i + 1 < receives_ && turns[i + 1] < turns[i];
    group.data[i] = chunk.data + draw.begins[i];
    group.sizes[i] = static_cast<int>(draw.begins[i + 1] - draw.begins[i]);
    group.room[i] = draw.begins[i + (reaches ? 2 : 1)] - draw.begins[i];
    group.tags[i] = draw.tags[i];
    group.mhandles[i] = posting.mhandle;
  }
  return true;
}

inline void GroupedLoop::took(ScheduledFlow& flow, const Chunk<Part>& chunk) {
  if (flow.kind == FlowKind::kSend && place_of(flow.posted) != 0) return;
  Drawn& drawn = drawn_[index_of(flow)];
  ++drawn.chunks;
  drawn.open = false;
  TimedLoop::took(flow, chunk);
}

inline void GroupedLoop::finished(const ScheduledFlow& flow, const Chunk<Part>& chunk) {
  if (flow.kind == FlowKind::kSend && place_of(flow.finished) != 0) return;
  TimedLoop::finished(flow, chunk);
}

}  // namespace tcpx
