// Several loops of a rank, each on a thread of its own: they wait for each other where a program
// says so, end an iteration together, and fail together.
#include <memory>
#include <mutex>

#include "engine/loop_team.h"
#include "engine/traced_loop.h"
#include "rig.h"

using namespace tcpx;

namespace {

constexpr int kChannels = 4;
constexpr uint64_t kIterations = 40;

// The fake plugin for callers on several threads.
class LockedNet : public FakeNet {
 public:
  int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return FakeNet::isend(comm, data, bytes, tag, mhandle, request);
  }
  int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
            void** request) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return FakeNet::irecv(comm, n, data, bytes, tags, mhandles, request);
  }
  int test(void* request, int* done, int* sizes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return FakeNet::test(request, done, sizes);
  }
  int irecv_consumed(void* comm, int n, void* request) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return FakeNet::irecv_consumed(comm, n, request);
  }

 private:
  std::mutex mutex_;
};

struct TeamRig {
  explicit TeamRig(size_t loops) : connections(net, 0) {
    for (int channel = 0; channel < kChannels; ++channel) {
      const auto handle = connections.listen(kPeer, 0, channel);
      connections.add_send(kPeer, 0, channel, handle.data());
    }
    connections.establish(5.0);
    std::vector<BatchLoop*> members;
    for (size_t i = 0; i < loops; ++i) {
      this->loops.push_back(std::make_unique<TracedLoop>(net, connections, TimedLoopLimits{},
                                                         nullptr, nullptr, 4096));
      members.push_back(this->loops.back().get());
    }
    team.emplace(members, -1);
  }
  ~TeamRig() { team.reset(); }

  void load(const Steps& steps) {
    for (int buffer : {kSendBuffer, kReceiveBuffer}) {
      memory[buffer].assign(1 << 16, 0);
      connections.register_buffer(buffer, memory[buffer].data(), memory[buffer].size(),
                                  kNetPtrHost);
      bases[buffer] = {memory[buffer].data(), 256};
    }
    const BlockTable blocks[kBuffers] = {blocks_of({160}), blocks_of({160}), {}};
    auto programs = split(compile(steps.data(), steps.size(), blocks, 16, kChannels), loops.size());
    for (size_t i = 0; i < loops.size(); ++i) loops[i]->load(std::move(programs[i]), bases);
    team->loaded();
    team->reserve(kIterations);
  }
  void run(int64_t stall_ns = 20'000'000'000) {
    BatchPlan plan;
    plan.iterations = kIterations;
    plan.stall_ns = stall_ns;
    team->arm(kIterations);
    team->start(plan);
    CHECK(team->wait(30));
  }

  LockedNet net;
  Connections connections;
  std::vector<std::unique_ptr<TracedLoop>> loops;
  std::optional<LoopTeam> team;
  std::vector<uint8_t> memory[2];
  SlotBase bases[kBuffers] = {};
};

}  // namespace

TEST(each_queue_has_one_loop_and_each_loop_its_count) {
  const BlockTable blocks[kBuffers] = {blocks_of({160}), blocks_of({160}), {}};
  const Steps steps = Steps().receive(0).send(0);
  const auto parts = split(compile(steps.data(), steps.size(), blocks, 16, kChannels), 3);
  uint32_t receives = 0;
  for (const Program& part : parts) {
    uint32_t its = 0;
    for (const ChunkQueue& queue : part.queues) {
      its += queue.kind == FlowKind::kReceive ? static_cast<uint32_t>(queue.ops.size()) : 0;
      CHECK_EQ((queue.channel + queue.peer) % 3, (&part - parts.data()));
    }
    CHECK_EQ(its, part.ops[0][static_cast<int>(FlowKind::kReceive)]);
    receives += its;
  }
  CHECK_EQ(receives, 10u);
}

// Loops stamp what comes from a source that all of them have parts of.
TEST(each_loop_has_all_sources_of_the_whole) {
  const Steps steps = Steps().receive(0).receive(1, -1, kChunk, 1);
  BlockTable blocks[kBuffers] = {};
  blocks[kReceiveBuffer] = {{0, 64}, {64, 64}};
  for (const Program& part : split(compile(steps.data(), steps.size(), blocks, 16, 2), 2)) {
    CHECK(part.sources == std::vector<int>({kPeer, kPeer}));
    CHECK(part.source_lanes == std::vector<int>({0, 1}));
  }
}

TEST(an_iteration_begins_when_all_loops_have_ended_the_one_before) {
  for (const size_t loops : {1u, 3u, 6u}) {  // of 6 two have nothing to do
    TeamRig rig(loops);
    rig.load(Steps().receive(0).send(0, 0, kWhole));
    for (int batch = 0; batch < 2; ++batch) {
      rig.run();
      CHECK_EQ(rig.team->fault().kind, FaultKind::kNone);
      const auto trace = rig.team->trace();
      CHECK_EQ(trace.size(), kIterations * 20);
      std::vector<int64_t> received(kIterations, 0), ended(kIterations, 0);
      for (const ChunkTrace& chunk : trace) {
        if (chunk.kind == 1) {
          received[chunk.iteration] = std::max(received[chunk.iteration], chunk.done);
        }
        ended[chunk.iteration] = std::max(ended[chunk.iteration], chunk.done);
      }
      const BatchStamps stamps = rig.team->stamps(kIterations);
      for (const ChunkTrace& chunk : trace) {
        if (chunk.kind != 0) continue;
        CHECK(chunk.post >= received[chunk.iteration]);
        if (chunk.iteration > 0) CHECK(chunk.post >= ended[chunk.iteration - 1]);
      }
      for (uint64_t i = 0; i < kIterations; ++i) {
        CHECK(stamps.end[i] >= ended[i]);
        CHECK(stamps.receive_done[i] >= received[i]);
        if (i > 0) CHECK(stamps.end[i] >= stamps.end[i - 1]);
      }
    }
  }
}

TEST(the_fault_of_one_loop_ends_all) {
  TeamRig rig(3);
  rig.load(Steps().receive(0).send(0));
  const FakeComm* broken =
      static_cast<FakeComm*>(rig.connections.find(Direction::kSend, kPeer, 0, 2)->comm);
  rig.net.code = [&](Call call, const FakeComm* comm) {
    return call == Call::kIsend && comm == broken && comm->posted > 20 ? 2 : 0;
  };
  rig.run();
  const Fault fault = rig.team->fault();
  CHECK_EQ(fault.kind, FaultKind::kPlugin);
  CHECK_EQ(fault.channel, 2);
  const auto picture = rig.team->picture();
  CHECK(fault.flow >= 0 && static_cast<size_t>(fault.flow) < picture.size());
  CHECK_EQ(picture[fault.flow].channel, 2);
  CHECK(picture[fault.flow].kind == FlowKind::kSend);
}

TEST(a_loop_that_waits_for_one_that_stalls_is_not_what_is_told) {
  TeamRig rig(2);
  rig.load(Steps().receive(0).send(0));
  const FakeComm* silent =
      static_cast<FakeComm*>(rig.connections.find(Direction::kReceive, kPeer, 0, 1)->comm);
  rig.net.completes = [&](const FakeRequest& request) { return request.comm != silent; };
  rig.run(30'000'000);
  CHECK_EQ(rig.team->fault().kind, FaultKind::kStall);
  CHECK_EQ(rig.team->picture().size(), 2u * kChannels);
}

CHECK_MAIN()
