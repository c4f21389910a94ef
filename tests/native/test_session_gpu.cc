// A session with a peer into GPU memory, on the fake driver: which GPU is current, and how it ends.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "scattering_net.h"
#include "transfer_pair.h"

using namespace tcpx;

namespace {

constexpr size_t kBytes = 1 << 14;
constexpr size_t kChunkOnGpu = 4096;
constexpr uint64_t kChunks = kBytes / kChunkOnGpu;

// Notes how many receives had been given back when the first registration went.
class NotingNet : public ScatteringNet {
 public:
  NotingNet() : ScatteringNet(1) {}
  int dereg_mr(void* comm, void* mhandle) override {
    if (deregistered == 0) consumed_at_close = count(Call::kConsumed);
    return ScatteringNet::dereg_mr(comm, mhandle);
  }
  uint64_t consumed_at_close = 0;
};

// A session on GPU 1 with two channels up, on a thread that has GPU 0 current.
struct PairOnGpu {
  explicit PairOnGpu(int64_t close_patience_ns = kPatient) {
    test_gpu(0);
    TransferLimits limits{2, kChunkOnGpu, 12, 16};
    limits.close_patience_ns = close_patience_ns;
    session = std::make_unique<Session>(net, 0, limits, 1);
    for (int channel = 0; channel < 2; ++channel) {
      session->add_send(channel, session->listen(channel).data());
    }
    session->establish(5.0, std::nullopt);
    memory = std::make_unique<GpuMemory>(use_gpu(1), kBytes);
    id = session->register_memory(data(), kBytes, kNetPtrCuda);
  }
  uint8_t* data() { return reinterpret_cast<uint8_t*>(memory->address()); }
  // All that was received is listed, and its unpacks are begun or queued.
  void receive() {
    transfer = session->create();
    session->post(transfer, Direction::kReceive, id, 0, kBytes);
    for (int round = 0; round < 8; ++round) session->poll(transfer);
  }

  NotingNet net;
  std::unique_ptr<Session> session;
  std::unique_ptr<GpuMemory> memory;
  int id = 0;
  uint64_t transfer = 0;
};

}  // namespace

TEST(a_session_leaves_the_callers_own_gpu_current) {
  PairOnGpu pair;
  CHECK_EQ(current_gpu(), 0);
  pair.receive();
  CHECK_EQ(pair.session->wait(pair.transfer, kPatient), WaitResult::kComplete);
  CHECK_EQ(current_gpu(), 0);
  pair.session->deregister_memory(pair.id);
  CHECK_EQ(current_gpu(), 0);
  pair.session->close();
  CHECK_EQ(current_gpu(), 0);
  pair.session.reset();
  pair.memory.reset();
  CHECK_EQ(current_gpu(), 0);
}

TEST(closing_waits_for_unpacks_under_way_and_gives_back_what_arrived) {
  PairOnGpu pair;
  auto held = std::make_unique<Held>();
  pair.receive();
  CHECK_EQ(pair.net.count(Call::kConsumed), 0u);
  std::atomic<bool> closing{false};
  std::thread gpu([&] {
    while (!closing) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // close() is in its wait by then
    held.reset();
  });
  closing = true;
  pair.session->close();
  gpu.join();
  CHECK_EQ(pair.net.count(Call::kConsumed), kChunks);
  CHECK_EQ(pair.net.consumed_at_close, kChunks);
  CHECK_EQ(pair.net.closed.size(), 4u);
  std::vector<uint8_t> found(kBytes);
  copy_now(reinterpret_cast<CudaAddress>(found.data()), pair.memory->address(), kBytes);
  for (const auto& [at, wanted] : pair.net.delivered) {
    CHECK(std::equal(wanted.begin(), wanted.end(), found.begin() + (at - pair.data())));
  }
  CHECK_CONTRACT(pair.net);
}

TEST(fragments_that_are_not_the_whole_chunk_are_a_fault_that_names_it) {
  PairOnGpu pair;
  pair.net.lost = 1;
  pair.receive();
  CHECK_EQ(pair.session->poll(pair.transfer), TransferState::kFailed);
  const TransferFault fault = pair.session->fault();
  CHECK_EQ(fault.kind, FaultKind::kSize);
  CHECK_EQ(fault.code, static_cast<int>(kChunkOnGpu - 1));
  CHECK_EQ(fault.bytes, uint64_t{kChunkOnGpu});
  CHECK_EQ(pair.net.count(Call::kConsumed), 0u);
}

TEST(what_arrived_in_the_round_of_a_failure_is_unpacked_before_the_comms_go) {
  PairOnGpu pair;
  pair.net.code = [&](Call call, const FakeComm* comm) {
    return call == Call::kTest && !comm->sends && pair.net.count(Call::kTest) > 0 ? kNetSystemError
                                                                                  : kNetSuccess;
  };
  pair.receive();
  CHECK_EQ(pair.session->poll(pair.transfer), TransferState::kFailed);
  pair.session->close();
  CHECK_EQ(pair.net.consumed_at_close, 0u);  // a comm that failed may have taken others along
  CHECK_EQ(pair.net.closed.size(), 4u);
}

TEST(a_gpu_that_does_not_end_leaves_the_comms_open) {
  PairOnGpu pair(1);
  {
    const Held held;
    pair.receive();
    CHECK_THROWS(pair.session->close(), CudaError, "does not end its unpacks");
    CHECK_EQ(pair.net.closed.size(), 0u);
    CHECK_EQ(pair.net.deregistered, 0);
  }
  pair.session->close();
  CHECK_EQ(pair.net.closed.size(), 0u);
}

TEST(what_a_plugin_puts_into_gpu_memory_is_flushed_before_a_transfer_is_complete) {
  // That of a plugin for which NCCL flushes, and of one for which it does not.
  for (const bool forced : {true, false}) {
    struct ForcingNet : FakeNet {
      int properties(int, NetProperties* out) override {
        *out = {};
        out->force_flush = force;
        return 0;
      }
      bool force = false;
    } net;
    net.force = forced;
    if (forced) net.flush_tests = 1 << 20;
    test_gpu(0);
    Session session(net, 0, {1, kChunkOnGpu, 12, 16}, 0);
    session.add_send(0, session.listen(0).data());
    session.establish(5.0, std::nullopt);
    const GpuMemory memory(use_gpu(0), kBytes);
    std::vector<uint8_t> host(kBytes);
    const int on_gpu =
        session.register_memory(reinterpret_cast<uint8_t*>(memory.address()), kBytes, kNetPtrCuda);
    const int on_host = session.register_memory(host.data(), kBytes, kNetPtrHost);
    const uint64_t first = session.create(), second = session.create();
    session.post(first, Direction::kReceive, on_host, 0, kBytes);
    for (int round = 0; round < 8; ++round) session.poll(first);
    CHECK_EQ(session.poll(first), TransferState::kComplete);  // the host's needs none
    CHECK_EQ(net.count(Call::kFlush), 0u);
    session.post(second, Direction::kReceive, on_gpu, 0, kBytes);
    session.post(second, Direction::kReceive, on_gpu, 0, 0);
    for (int round = 0; round < 16; ++round) session.poll(second);
    CHECK_EQ(session.look(second), forced ? TransferState::kActive : TransferState::kComplete);
    CHECK_EQ(net.count(Call::kFlush), forced ? kChunks : 0u);
    if (forced) net.flush_tests = 0;
    for (int round = 0; round < 16; ++round) session.poll(second);
    CHECK_EQ(session.look(second), TransferState::kComplete);
    CHECK_CONTRACT(net);
  }
}

CHECK_MAIN()
