// The timed loop with several messages a chunk: one irecv takes them all, each is sent by itself.
// How a chunk is cut (some get nothing), which tag a piece has and in which order pieces are sent
// is drawn alike at both ends, from a seed and the place of the chunk in its flow. A class of its
// own: a loop without groups draws nothing.
#pragma once

#include <array>
#include <vector>

#include "engine/timed_loop.h"

namespace tcpx {

// How the messages of one chunk are, by their place in the receive.
struct GroupDraw {
  int tags[kMaxReceives];
  int order[kMaxReceives];            // the place of the one that is sent first, second, ...
  uint32_t begins[kMaxReceives + 1];  // in the chunk; the last is its end
};
// Of the chunk that is the `number`-th of its flow, on this channel.
GroupDraw draw_group(uint64_t seed, int channel, uint64_t number, uint32_t bytes, int receives);

class GroupedLoop final : public TimedLoop {
 public:
  // As TimedLoop, of a plugin that puts what it receives in place. Windows count messages. Throws
  // std::invalid_argument for more receives than a window or kMaxReceives.
  GroupedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits, Unpacker* copier,
              int receives, uint64_t seed);

  void load(Program program, const SlotBase* buffers) override;

 private:
  template <typename, typename>
  friend struct Flow;
  // Of one flow.
  struct Drawn {
    uint64_t chunks = 0;  // since the row was loaded
    bool open = false;    // the next chunk is drawn: `draw`
    GroupDraw draw;
    std::array<Group, kNetMaxRequests> groups;  // of receives, by their place in the window
  };

  // As a feed.
  static constexpr bool kGroups = true;
  bool next(const ScheduledFlow& flow, Chunk<Part>& chunk, Posting& posting);
  void took(ScheduledFlow& flow, const Chunk<Part>& chunk);
  void finished(const ScheduledFlow& flow, const Chunk<Part>& chunk);
  const Group& group(const ScheduledFlow& flow, const Chunk<Part>& chunk) const {
    return drawn_[index_of(flow)].groups[static_cast<size_t>(&chunk - flow.chunks)];
  }
  int tag(const ScheduledFlow& flow) const {
    const GroupDraw& draw = drawn_[index_of(flow)].draw;
    return draw.tags[draw.order[place_of(flow.posted)]];
  }

  bool sweep() override { return sweep_for(*this); }
  size_t index_of(const ScheduledFlow& flow) const {
    return static_cast<size_t>(&flow - flows_.data());
  }
  // Of a message that is sent: in its group.
  size_t place_of(uint64_t number) const { return number % static_cast<uint64_t>(receives_); }

  const int receives_;
  const uint64_t seed_;
  std::vector<Drawn> drawn_;  // by flow
};

}  // namespace tcpx
