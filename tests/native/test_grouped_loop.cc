// The loop with several messages a chunk: both ends draw alike, and what a plugin does to them
// shows.
#include "engine/grouped_loop.h"
#include "rig.h"

using namespace tcpx;

namespace {

constexpr uint64_t kSeed = 7;
constexpr uint64_t kChunkBytes = 64;
constexpr uint64_t kLastBytes = 3;
constexpr uint64_t kIterations = 12;

// 5 chunks an iteration, the last one shorter, on 2 channels.
struct GroupRig : Rig {
  explicit GroupRig(int receives, TimedLoopLimits limits = {},
                    uint64_t bytes = 4 * kChunkBytes + kLastBytes, int pointer = kNetPtrHost)
      : loop(net, connections, limits, nullptr, receives, kSeed) {
    net.max_receives = receives;
    const Steps steps = Steps().receive(0).send(0);
    load(steps, {bytes}, kChunkBytes, kIterations);  // registers
    connections.register_buffer(kReceiveBuffer, memory[kReceiveBuffer].data(),
                                memory[kReceiveBuffer].size(), pointer);
    const BlockTable blocks[kBuffers] = {blocks_of({bytes}), blocks_of({bytes}), {}};
    loop.load(compile(steps.data(), steps.size(), blocks, kChunkBytes, 2), bases);
    loop.reserve(kIterations);
  }

  bool run(int64_t stall_ms = 2000) {
    BatchPlan plan;
    plan.iterations = kIterations;
    plan.stall_ns = stall_ms * 1'000'000;
    return loop.run(plan);
  }

  GroupedLoop loop;
};

struct Sent {
  int tag;
  uint8_t* data;
  size_t bytes;
};

// What each end posts, by channel.
struct Posts {
  explicit Posts(GroupRig& rig) {
    rig.net.watch = [this, &rig](const FakeEvent& event) {
      if (!event.moved || (event.call != Call::kIsend && event.call != Call::kIrecv)) return;
      const FakeRequest& request = event.comm->requests[event.serial % kNetMaxRequests];
      const auto way = event.comm->sends ? Direction::kSend : Direction::kReceive;
      const int channel = event.comm == rig.comm(way, 0) ? 0 : 1;
      if (event.comm->sends) {
        sent[channel].push_back({request.tags[0], request.data, request.bytes});
      } else {
        received[channel].push_back(request);
      }
    };
  }
  std::vector<Sent> sent[2];
  std::vector<FakeRequest> received[2];
};

// What a plugin tells of a channel's only chunk of an iteration.
void tell_sizes(const FakeRequest& group, int* sizes) {
  const GroupDraw draw = draw_group(kSeed, 0, group.serial, kChunkBytes, group.n);
  for (int i = 0; i < group.n; ++i) {
    sizes[i] = static_cast<int>(draw.begins[i + 1] - draw.begins[i]);
  }
}

}  // namespace

TEST(both_ends_of_a_channel_draw_alike_and_each_byte_is_sent_once) {
  for (const int n : {2, 3, 8}) {
    GroupRig rig(n);
    Posts posts(rig);
    CHECK(rig.run());
    CHECK(rig.run());
    CHECK_CONTRACT(rig.net);
    size_t pieces = 0;  // of full chunks
    size_t empty = 0;
    uint64_t turned = 0;
    uint64_t wider = 0;
    for (const int channel : {0, 1}) {
      const auto& groups = posts.received[channel];
      CHECK_EQ(groups.size(), 2 * kIterations * (channel == 0 ? 3 : 2));
      CHECK_EQ(posts.sent[channel].size(), groups.size() * n);
      for (size_t k = 0; k < groups.size(); ++k) {
        const FakeRequest& group = groups[k];
        CHECK_EQ(group.n, n);
        // By the place in the receive: which is sent there, and when.
        Sent messages[kMaxReceives] = {};
        int turns[kMaxReceives];
        for (int turn = 0; turn < n; ++turn) {
          const Sent& message = posts.sent[channel][k * n + turn];
          const auto place = std::find(group.tags, group.tags + n, message.tag) - group.tags;
          CHECK(place < n && messages[place].data == nullptr);
          messages[place] = message;
          turns[place] = turn;
          turned += turn != place;
        }
        const uint8_t* end = group.parts[0];
        for (int place = 0; place < n; ++place) {
          const Sent& message = messages[place];
          CHECK_EQ((message.data - rig.memory[kSendBuffer].data()) % Rig::kStride,
                   (group.parts[place] - rig.memory[kReceiveBuffer].data()) % Rig::kStride);
          CHECK_EQ(group.parts[place], end);
          const bool reaches = place + 1 < n && turns[place + 1] < turns[place];
          const size_t behind = reaches ? messages[place + 1].bytes : 0;
          CHECK_EQ(group.room[place], message.bytes + behind);
          end += message.bytes;
          wider += behind != 0;
        }
        const auto bytes = static_cast<uint64_t>(end - group.parts[0]);
        CHECK(bytes == kChunkBytes || bytes == kLastBytes);
        if (bytes != kChunkBytes) continue;
        pieces += n;
        empty += std::count_if(messages, messages + n, [](const Sent& m) { return m.bytes == 0; });
      }
    }
    CHECK(turned > 0 && wider > 0);
    CHECK_LE(pieces, 8 * empty);  // more than by chance
  }
}

TEST(windows_count_messages) {
  for (const int n : {2, 5, 8}) {
    TimedLoopLimits limits;
    limits.window_send = limits.window_receive = 11;
    GroupRig rig(n, limits);
    rig.net.completes = [](const FakeRequest& request) { return request.tests > 20; };
    CHECK(rig.run());
    CHECK_CONTRACT(rig.net);
    for (const int channel : {0, 1}) {
      const int in_iteration = (channel == 0 ? 3 : 2) * n;
      CHECK_EQ(rig.comm(Direction::kSend, channel)->most_outstanding,
               static_cast<uint64_t>(std::min(11, in_iteration)));
      CHECK_EQ(rig.comm(Direction::kReceive, channel)->most_outstanding,
               static_cast<uint64_t>(11 / n));
    }
  }
}

// Some plugins begin with a group when all of it is known.
TEST(no_group_waits_for_messages_of_the_next_one) {
  const int n = 8;
  TimedLoopLimits limits;
  limits.window_send = limits.window_receive = n;
  GroupRig rig(n, limits);
  rig.net.completes = [&](const FakeRequest& request) {
    return !request.comm->sends || request.comm->posted >= (request.serial / n + 1) * n;
  };
  CHECK(rig.run());  // else it would stall
  CHECK_CONTRACT(rig.net);
}

TEST(the_size_of_each_message_is_compared_with_what_was_sent) {
  const int n = 4;
  for (const int wrong : {-1, 0, 1, 2, 3}) {
    GroupRig rig(n, {}, kChunkBytes);  // one chunk, on channel 0
    int sent = 0;
    int told = 0;
    rig.net.report_group = [&](const FakeRequest& group, int* sizes) {
      tell_sizes(group, sizes);
      if (group.serial != 3 || wrong < 0) return;
      sent = sizes[wrong];
      told = sizes[wrong] += 1;
    };
    CHECK_EQ(rig.run(), wrong < 0);
    CHECK_CONTRACT(rig.net);
    if (wrong < 0) continue;
    const Fault& fault = rig.loop.fault();
    CHECK_EQ(fault.kind, FaultKind::kSize);
    CHECK_EQ(fault.code, told);
    CHECK_EQ(fault.bytes, static_cast<uint64_t>(sent));
    CHECK_EQ(fault.iteration, 3u);
  }
}

TEST(a_group_is_flushed_together_by_what_was_sent) {
  TimedLoopLimits limits;
  limits.flushes = true;
  GroupRig rig(3, limits, kChunkBytes, kNetPtrCuda);
  rig.net.flush_tests = 2;
  rig.net.report_group = tell_sizes;
  CHECK(rig.run());
  CHECK_CONTRACT(rig.net);
  CHECK_EQ(rig.net.count(Call::kFlush), kIterations);
}

TEST(more_receives_than_a_window_are_refused) {
  Rig rig;
  TimedLoopLimits limits;
  limits.window_receive = 4;
  for (const int n : {0, 5, 9}) {
    CHECK_THROWS(GroupedLoop(rig.net, rig.connections, limits, nullptr, n, kSeed),
                 std::invalid_argument, "receives a request");
  }
}

CHECK_MAIN()
