// One life of a chunk: every transition of its state, and the size rule in both feeds.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/flow.h"
#include "rig.h"
#include "transfer_pair.h"

using namespace tcpx;

namespace {

// Moves bytes when the test says so.
struct HeldMover : Unpacker {
  UnpackResult submit(const UnpackSource&, uint8_t*, uint64_t posted) override {
    ++tickets_;
    return {fits ? posted : posted - 1, true, false};
  }
  void copy(uint8_t*, const uint8_t*, uint64_t) override { ++tickets_; }
  void reduce(const uint8_t*, const uint8_t*, uint8_t*, uint64_t) override {
    ++tickets_;
    ++computed;
  }
  void prepare(const Arithmetic&) override {}
  UnpackResult submit_reduce(const UnpackSource& source, const uint8_t*, uint8_t* destination,
                             uint64_t posted) override {
    ++computed;
    return submit(source, destination, posted);
  }
  void scale(uint8_t*, const uint8_t*, uint64_t) override {
    ++tickets_;
    ++computed;
  }
  uint64_t finished() override { return in_place; }
  bool fits = true;
  uint64_t in_place = 0;
  int computed = 0;
};

struct Nothing {};
using OneFlow = Flow<Nothing, Nothing>;

// A flow with one chunk to post over a plugin that the test scripts.
struct Scene {
  Scene(FlowKind kind, bool in_fragments) : scattered(in_fragments), connections_(net_, 0) {
    flow.kind = kind;
    flow.window = 1;
    if (kind == FlowKind::kCopy) return;
    const auto direction = kind == FlowKind::kSend ? Direction::kSend : Direction::kReceive;
    const auto handle = connections_.listen(kPeer, 0, 0);
    connections_.add_send(kPeer, 0, 0, handle.data());
    connections_.establish(1.0);
    flow.comm = connections_.find(direction, kPeer, 0, 0);
    net_.reg_mr(flow.comm->comm, memory_, sizeof memory_, kNetPtrHost, &mhandle_);
    if (!in_fragments) return;
    device_.meta = fragments_.get();
    flow.queue = &device_;
    flow.mover = &mover;
  }
  static constexpr bool kComputes = true;
  static constexpr bool kTraces = false;
  static constexpr bool kGroups = false;
  const Arithmetic& arithmetic() const { return doubles_; }
  bool pause_over(const Chunk<Nothing>&) { return true; }
  Operands operands(const Chunk<Nothing>&) { return {memory_ + 8, memory_ + 8}; }

  FakeNet& net() { return net_; }
  bool failed() const { return fault.kind != FaultKind::kNone; }
  int64_t now() const { return 1; }
  void calls(const OneFlow&, watch::InCall) {}
  void flushes(const Chunk<Nothing>&) { ++flush_calls; }
  bool next(OneFlow&, Chunk<Nothing>& chunk, Posting& posting) {
    if (offered == 0) return false;
    chunk.data = memory_;
    chunk.bytes = 8;
    chunk.scattered = scattered;
    chunk.flushes = net_.flush_tests.has_value();
    chunk.work = work;
    posting = {mhandle_, memory_ + 8};
    return true;
  }
  void took(OneFlow&, const Chunk<Nothing>&) { --offered; }
  void finished(OneFlow&, const Chunk<Nothing>&) { ++ended; }
  void fail(OneFlow&, const Chunk<Nothing>&, const FlowFault& of_chunk) { fault = of_chunk; }
  ChunkState state() const { return flow.chunks[0].state; }
  uint64_t steps() const { return flow.posted + flow.tested + flow.finished; }

  OneFlow flow;
  HeldMover mover;
  FlowFault fault;
  bool scattered;
  ChunkWork work = ChunkWork::kMove;
  int offered = 1;
  int ended = 0;
  int flush_calls = 0;
  uint8_t memory_[16] = {};  // a chunk, and what it is copied from or reduced with

 private:
  const Arithmetic doubles_ = make_arithmetic(kUint8, kMulsum, 2);
  FakeNet net_;
  Connections connections_;
  std::unique_ptr<NetUnpackQueue> fragments_ = std::make_unique<NetUnpackQueue>();
  NetUnpackDevice device_{};
  void* mhandle_ = nullptr;
};

using Event = std::function<void(Scene&)>;

void nothing_happens(Scene&) {}
void plugin_is_busy(Scene& s) {
  s.net().busy = [](const FakeComm&) { return true; };
}
void plugin_has_room(Scene& s) {
  s.net().busy = [](const FakeComm&) { return false; };
}
void pending(Scene& s) {
  s.net().completes = [](const FakeRequest&) { return false; };
}
void done(Scene& s) {
  s.net().completes = [](const FakeRequest&) { return true; };
}
void bad_size(Scene& s) {
  done(s);
  s.net().reported_size = [](const FakeRequest&) { return 7; };
}
void bad_fragments(Scene& s) {
  done(s);
  s.mover.fits = false;
}
void in_place(Scene& s) { s.mover.in_place = 1; }
void hidden_for(Scene& s, int tests) { s.net().flush_tests = tests; }
void hidden(Scene& s) { hidden_for(s, 1 << 20); }
void hidden_no_longer(Scene& s) { hidden_for(s, 0); }
void with_copier(Scene& s) { s.flow.mover = &s.mover; }
Event refuses(Call refused) {
  return [refused](Scene& s) {
    done(s);
    s.mover.in_place = 1;
    s.net().code = [refused](Call call, const FakeComm*) { return call == refused ? 3 : 0; };
  };
}

}  // namespace

TEST(every_transition_of_a_chunk) {
  using S = ChunkState;
  const struct {
    const char* name;
    FlowKind kind;
    bool scattered;
    std::vector<std::pair<Event, S>> life;  // what happens, and the state after one visit
    const char* failed_call = "";
  } lives[] = {
      {"send",
       FlowKind::kSend,
       false,
       {{plugin_is_busy, S::kQueued},
        {plugin_has_room, S::kPosted},
        {pending, S::kPosted},
        {done, S::kFinished}}},
      {"send, size of 7",
       FlowKind::kSend,
       false,
       {{pending, S::kPosted}, {bad_size, S::kFinished}}},
      {"receive in place",
       FlowKind::kReceive,
       false,
       {{pending, S::kPosted}, {done, S::kFinished}}},
      {"receive in fragments",
       FlowKind::kReceive,
       true,
       {{plugin_is_busy, S::kQueued},
        {plugin_has_room, S::kPosted},
        {done, S::kMoving},
        {nothing_happens, S::kMoving},
        {in_place, S::kFinished}}},
      {"receive that is flushed at once",
       FlowKind::kReceive,
       false,
       {{[](Scene& s) { pending(s), hidden_for(s, 0); }, S::kPosted}, {done, S::kFinished}}},
      {"receive that is flushed",
       FlowKind::kReceive,
       false,
       {{hidden, S::kPosted},
        {nothing_happens, S::kFlushing},
        {nothing_happens, S::kFlushing},
        {hidden_no_longer, S::kFinished}}},
      {"iflush fails",
       FlowKind::kReceive,
       false,
       {{hidden, S::kPosted}, {refuses(Call::kFlush), S::kFailed}},
       "iflush"},
      {"test of iflush fails",
       FlowKind::kReceive,
       false,
       {{hidden, S::kPosted},
        {nothing_happens, S::kFlushing},
        {refuses(Call::kTestFlush), S::kFailed}},
       "test of iflush"},
      {"wrong size is not flushed",
       FlowKind::kReceive,
       false,
       {{hidden, S::kPosted}, {bad_size, S::kFailed}},
       "test"},
      {"copy by the CPU", FlowKind::kCopy, false, {{nothing_happens, S::kFinished}}},
      {"copy by the GPU",
       FlowKind::kCopy,
       false,
       {{with_copier, S::kMoving}, {nothing_happens, S::kMoving}, {in_place, S::kFinished}}},
      {"isend fails", FlowKind::kSend, false, {{refuses(Call::kIsend), S::kFailed}}, "isend"},
      {"irecv fails", FlowKind::kReceive, false, {{refuses(Call::kIrecv), S::kFailed}}, "irecv"},
      {"test fails",
       FlowKind::kSend,
       false,
       {{pending, S::kPosted}, {refuses(Call::kTest), S::kFailed}},
       "test"},
      {"wrong size",
       FlowKind::kReceive,
       false,
       {{pending, S::kPosted}, {bad_size, S::kFailed}},
       "test"},
      {"wrong fragments",
       FlowKind::kReceive,
       true,
       {{pending, S::kPosted}, {bad_fragments, S::kFailed}},
       "test"},
      {"irecvConsumed fails in place",
       FlowKind::kReceive,
       false,
       {{pending, S::kPosted}, {refuses(Call::kConsumed), S::kFailed}},
       "irecvConsumed"},
      {"irecvConsumed fails after fragments",
       FlowKind::kReceive,
       true,
       {{pending, S::kPosted}, {done, S::kMoving}, {refuses(Call::kConsumed), S::kFailed}},
       "irecvConsumed"},
  };
  for (const auto& life : lives) {
    Scene scene(life.kind, life.scattered);
    for (size_t i = 0; i < life.life.size(); ++i) {
      const auto& [happens, expected] = life.life[i];
      const uint64_t before = scene.steps();
      happens(scene);
      const bool moved = scene.flow.advance(scene);
      const std::string where = std::string(life.name) + ", visit " + std::to_string(i);
      if (scene.state() != expected) {
        check::fail(__FILE__, __LINE__, where + ": state " + check::text(scene.state()));
      }
      const bool should = scene.steps() != before;
      if (expected != S::kFailed && moved != should)
        check::fail(__FILE__, __LINE__, where + ": moved " + check::text(moved));
    }
    const bool ends_well = life.life.back().second == S::kFinished;
    CHECK_EQ(scene.ended, ends_well ? 1 : 0);
    CHECK_EQ(scene.flow.finished, ends_well ? 1u : 0u);
    CHECK_EQ(scene.flow.bytes, ends_well ? 8u : 0u);
    CHECK_EQ(std::string(scene.fault.call), std::string(life.failed_call));
    CHECK_EQ(scene.fault.direction, ends_well ? FlowKind::kSend : life.kind);
    CHECK_EQ(scene.fault.bytes, ends_well ? 0u : 8u);
    CHECK_CONTRACT(scene.net());
  }
}

TEST(a_receive_is_reduced_once_when_it_is_there) {
  Scene scene(FlowKind::kReceive, false);
  scene.work = ChunkWork::kReduce;
  pending(scene);
  scene.flow.advance(scene);
  scene.memory_[8] = 40;
  scene.memory_[0] = 2;
  scene.flow.advance(scene);
  CHECK_EQ(scene.memory_[8], 40);
  done(scene);
  for (int visit = 0; visit < 3; ++visit) scene.flow.advance(scene);
  CHECK_EQ(scene.state(), ChunkState::kFinished);
  CHECK_EQ(scene.memory_[8], 42);
  CHECK_EQ(scene.memory_[0], 2);
  CHECK_CONTRACT(scene.net());
}

TEST(a_receive_is_reduced_when_it_is_flushed_by_the_cpu_or_the_gpu) {
  for (const bool by_gpu : {false, true}) {
    Scene scene(FlowKind::kReceive, false);
    scene.work = ChunkWork::kReduce;
    if (by_gpu) with_copier(scene);
    hidden(scene);
    scene.memory_[0] = 2;
    scene.memory_[8] = 40;
    for (int visit = 0; visit < 3; ++visit) scene.flow.advance(scene);
    CHECK_EQ(scene.state(), ChunkState::kFlushing);
    CHECK_EQ(scene.memory_[8], 40);
    CHECK_EQ(scene.mover.computed, 0);
    hidden_no_longer(scene);
    scene.flow.advance(scene);
    CHECK_EQ(scene.state(), by_gpu ? ChunkState::kMoving : ChunkState::kFinished);
    CHECK_EQ(scene.memory_[8], by_gpu ? 40 : 42);
    CHECK_EQ(scene.mover.computed, by_gpu ? 1 : 0);
    scene.mover.in_place = 1;
    scene.flow.advance(scene);
    CHECK_EQ(scene.state(), ChunkState::kFinished);
    CHECK_CONTRACT(scene.net());
  }
}

TEST(flushes_are_under_way_together_and_end_in_order) {
  Scene scene(FlowKind::kReceive, false);
  scene.flow.window = scene.offered = 3;
  hidden(scene);
  for (int visit = 0; visit < 6; ++visit) scene.flow.advance(scene);
  CHECK_EQ(scene.flow.tested, 3u);
  CHECK_EQ(scene.flow.flushing, 3);
  CHECK_EQ(scene.flush_calls, 3);
  FlowPicture picture;
  scene.flow.draw(&picture);
  CHECK_EQ(picture.flushing, 3u);
  // The younger ones would say so, too: nobody asks before the oldest is there.
  scene.net().flushes = [](const FakeFlush& flush) { return flush.receive->serial > 0; };
  scene.flow.advance(scene);
  CHECK_EQ(scene.ended, 0);
  hidden_no_longer(scene);
  scene.net().flushes = [](const FakeFlush&) { return true; };
  CHECK(scene.flow.advance(scene));
  CHECK_EQ(scene.ended, 3);
  CHECK_EQ(scene.flow.flushing, 0);
  CHECK_CONTRACT(scene.net());
}

TEST(a_receive_in_fragments_is_reduced_by_who_unpacks) {
  Scene scene(FlowKind::kReceive, true);
  scene.work = ChunkWork::kReduce;
  for (int visit = 0; visit < 3; ++visit) scene.flow.advance(scene);
  CHECK_EQ(scene.state(), ChunkState::kMoving);
  CHECK_EQ(scene.mover.computed, 1);
  scene.mover.in_place = 1;
  scene.flow.advance(scene);
  CHECK_EQ(scene.state(), ChunkState::kFinished);
  CHECK_CONTRACT(scene.net());
}

TEST(a_scaling_lives_as_a_copy_does) {
  Scene by_cpu(FlowKind::kCopy, false);
  by_cpu.work = ChunkWork::kScale;
  by_cpu.memory_[8] = 21;
  by_cpu.flow.advance(by_cpu);
  CHECK_EQ(by_cpu.state(), ChunkState::kFinished);
  CHECK_EQ(by_cpu.memory_[0], 42);
  Scene by_gpu(FlowKind::kCopy, false);
  by_gpu.work = ChunkWork::kScale;
  with_copier(by_gpu);
  by_gpu.flow.advance(by_gpu);
  CHECK_EQ(by_gpu.state(), ChunkState::kMoving);
  CHECK_EQ(by_gpu.mover.computed, 1);
  by_gpu.mover.in_place = 1;
  by_gpu.flow.advance(by_gpu);
  CHECK_EQ(by_gpu.state(), ChunkState::kFinished);
}

TEST(a_chunk_behind_one_that_moves_waits_for_it_in_fragments_or_in_place) {
  for (const bool in_fragments : {true, false}) {
    Scene scene(FlowKind::kReceive, true);
    scene.flow.window = 2;
    scene.offered = 2;
    scene.flow.advance(scene);
    scene.scattered = in_fragments;
    for (int visit = 0; visit < 3; ++visit) scene.flow.advance(scene);
    const ChunkState waits = in_fragments ? ChunkState::kMoving : ChunkState::kArrived;
    CHECK_EQ(scene.flow.tested, 2u);
    CHECK_EQ(scene.flow.finished, 0u);
    CHECK_EQ(scene.flow.chunks[1].state, waits);
    scene.mover.in_place = 1;
    scene.flow.advance(scene);
    CHECK_EQ(scene.flow.chunks[0].state, ChunkState::kFinished);
    CHECK_EQ(scene.flow.chunks[1].state, in_fragments ? waits : ChunkState::kFinished);
    CHECK_CONTRACT(scene.net());
  }
}

// A plugin that never writes sizes leaves 0; one that wrote a size before means 0 when it says so.
TEST(a_size_of_0_counts_once_the_plugin_has_reported_a_size_whoever_feeds) {
  for (const bool reports : {false, true}) {
    const auto sizes = [reports](const FakeRequest& request) {
      return reports && request.serial == 0 ? static_cast<int>(request.bytes) : 0;
    };
    Rig rig(1);
    rig.load(Steps().receive(0), {32}, 16, 1);
    rig.net.reported_size = sizes;
    CHECK_EQ(rig.run(1), !reports);
    CHECK_EQ(rig.driver.fault().kind, reports ? FaultKind::kSize : FaultKind::kNone);
    CHECK_EQ(rig.driver.fault().bytes, reports ? 16u : 0u);

    Pair pair(1);
    pair.net.reported_size = sizes;
    const int memory = pair.memory(2 * kChunkBytes);
    CHECK_EQ(pair.wait(pair.receive(memory, 2 * kChunkBytes)),
             reports ? WaitResult::kFailed : WaitResult::kComplete);
    CHECK_EQ(pair.session.fault().kind, reports ? FaultKind::kSize : FaultKind::kNone);
  }
}

TEST(a_plugin_that_reports_sizes_is_remembered_in_the_next_row) {
  Rig rig(1);
  rig.net.reported_size = [](const FakeRequest& request) {
    return request.serial == 0 ? static_cast<int>(request.bytes) : 0;
  };
  rig.load(Steps().receive(0), {16}, 16, 1);
  CHECK(rig.run(1));
  rig.load(Steps().receive(0), {16}, 16, 1);
  CHECK(!rig.run(1));
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kSize);
}

CHECK_MAIN()
