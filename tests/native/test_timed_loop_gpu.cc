// The timed loop over GPU memory, on the fake driver: what a plugin scattered is put together by
// the GPU, what stays on the rank is copied by it, and a failure of either ends the batch.
#include <map>
#include <set>

#include "engine/progress_thread.h"
#include "fake_gpu.h"
#include "memory/cuda_slots.h"
#include "rig.h"
#include "scattering_net.h"
#include "unpack/cuda_unpacker.h"

using namespace tcpx;

namespace {

constexpr size_t kStride = 16384;
constexpr uint64_t kSlots = 8;

// A rank with buffers in GPU memory, two channels.
struct GpuRig {
  explicit GpuRig(UnpackMode mode = UnpackMode::kKernel)
      : connections(net, 0, 0),
        unpacker(0, mode),
        copier(0, UnpackMode::kCopies),
        driver(net, connections, {}, &unpacker, &copier) {
    for (int channel = 0; channel < 2; ++channel) {
      const auto handle = connections.listen(kPeer, 0, channel);
      connections.add_send(kPeer, 0, channel, handle.data());
    }
    connections.establish(5.0);
    for (const int buffer : {kSendBuffer, kReceiveBuffer}) {
      memory[buffer] = std::make_unique<GpuMemory>(test_gpu(), kStride * kSlots);
      auto* data = reinterpret_cast<uint8_t*>(memory[buffer]->address());
      connections.register_buffer(buffer, data, kStride * kSlots, kNetPtrCuda);
      bases[buffer] = {data, kStride};
    }
  }
  bool run(const Steps& steps, uint64_t bytes, uint64_t iterations,
           int64_t stall_ns = 10'000'000'000) {
    const BlockTable blocks[kBuffers] = {blocks_of({bytes}), blocks_of({bytes}), {}};
    driver.load(compile(steps.data(), steps.size(), blocks, 2048, 2), bases);
    driver.reserve(iterations);
    BatchPlan plan;
    plan.iterations = iterations;
    plan.stall_ns = stall_ns;
    return driver.run(plan);
  }
  std::vector<uint8_t> read(const uint8_t* at, size_t bytes) {
    std::vector<uint8_t> found(bytes);
    copy_now(reinterpret_cast<CudaAddress>(found.data()), reinterpret_cast<CudaAddress>(at), bytes);
    return found;
  }
  ScatteringNet net;
  Connections connections;
  CudaUnpacker unpacker;
  CudaUnpacker copier;
  TimedLoop driver;
  std::unique_ptr<GpuMemory> memory[kBuffers];
  SlotBase bases[kBuffers] = {};
};

// Notes which GPU is current on the thread that runs it.
class WhereItRuns : public BatchLoop {
 public:
  WhereItRuns() : BatchLoop(0) {
    const SlotBase none[kBuffers];
    set_row({}, none);
    reserve(1);
  }
  int gpu = -1;

 protected:
  void begin_flows() override { gpu = current_gpu(); }
  bool sweep() override { return false; }
  void take_picture(FlowReport*) const override {}
};

// A plugin that asks for the current GPU in every call, as TCPX does.
class AskingNet : public FakeNet {
 public:
  int properties(int device, NetProperties* out) override {
    note_gpu();
    return FakeNet::properties(device, out);
  }
  int listen(int device, void* handle, void** listen_comm) override {
    note_gpu();
    return FakeNet::listen(device, handle, listen_comm);
  }
  int connect(int device, void* handle, void** comm, NetDeviceHandle** on_device) override {
    note_gpu();
    return FakeNet::connect(device, handle, comm, on_device);
  }
  int accept(void* listen_comm, void** comm, NetDeviceHandle** on_device) override {
    note_gpu();
    return FakeNet::accept(listen_comm, comm, on_device);
  }
  int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    note_gpu();
    return FakeNet::reg_mr(comm, data, bytes, type, mhandle);
  }
  int close_recv(void* comm) override {
    note_gpu();
    return FakeNet::close_recv(comm);
  }
  std::vector<int> seen;

 private:
  void note_gpu() { seen.push_back(current_gpu()); }
};

}  // namespace

TEST(the_gpu_is_current_in_every_call_of_the_plugin_at_set_up) {
  test_gpu(0);
  AskingNet net;
  Connections connections(net, 0, 1);
  const auto handle = connections.listen(kPeer, 0, 0);
  connections.add_send(kPeer, 0, 0, handle.data());
  test_gpu(0);  // others use theirs in between
  connections.establish(1.0);
  test_gpu(0);
  connections.register_buffer(kReceiveBuffer, nullptr, 4096, kNetPtrCuda);
  test_gpu(0);
  connections.close();
  CHECK(net.seen == std::vector<int>(7, 1));
}

TEST(every_byte_of_scattered_receives_is_in_place_when_they_are_consumed) {
  for (const UnpackMode mode : {UnpackMode::kKernel, UnpackMode::kCopies, UnpackMode::kHost}) {
    GpuRig rig(mode);
    uint64_t consumed = 0;
    rig.net.watch = [&](const FakeEvent& event) {
      if (event.call != Call::kConsumed) return;
      const auto& wanted = rig.net.delivered[event.data];
      CHECK(rig.read(event.data, wanted.size()) == wanted);
      ++consumed;
    };
    CHECK(rig.run(Steps().receive(0), 9001, kSlots));
    CHECK_EQ(consumed, 5 * kSlots);  // chunks
    CHECK_CONTRACT(rig.net);
  }
}

TEST(what_was_scattered_is_reduced_by_the_gpu_and_then_scaled) {
  for (const UnpackMode mode : {UnpackMode::kKernel, UnpackMode::kCopies, UnpackMode::kHost}) {
    GpuRig rig(mode);
    // The send buffer's block and what comes, reduced; then scaled into where the operand was.
    constexpr size_t kBytes = 9000;
    const Arithmetic arithmetic = make_arithmetic(kUint32, kMulsum, 3);
    std::vector<uint8_t> local(kBytes);
    for (size_t i = 0; i < kBytes; ++i) local[i] = static_cast<uint8_t>(11 * i + i / 253);
    for (uint64_t slot = 0; slot < kSlots; ++slot) {
      copy_now(rig.memory[kSendBuffer]->address() + slot * kStride,
               reinterpret_cast<CudaAddress>(local.data()), kBytes);
    }
    const Steps steps =
        Steps()
            .row({3, kPeer, 0, kSendBuffer, 0, kReceiveBuffer, 0, 1, -1, 0, -1, 0})
            .row({4, -1, 0, kReceiveBuffer, 0, kSendBuffer, 0, 1, 0, kChunk, -1, 0});
    const BlockTable blocks[kBuffers] = {blocks_of({kBytes}), blocks_of({kBytes}), {}};
    rig.driver.load(compile(steps.data(), steps.size(), blocks, 2048, 2, arithmetic), rig.bases);
    rig.driver.reserve(kSlots);
    BatchPlan plan;
    plan.iterations = kSlots;
    plan.stall_ns = 10'000'000'000;
    CHECK(rig.driver.run(plan));
    CHECK_EQ(rig.net.delivered.size(), 5 * kSlots);
    for (const auto& [at, sent] : rig.net.delivered) {
      const size_t offset = static_cast<size_t>(at - rig.bases[kReceiveBuffer].base);
      std::vector<uint8_t> expected(sent.size());
      reduce_reference(arithmetic, sent.data(), local.data() + offset % kStride, expected.data(),
                       sent.size());
      CHECK(rig.read(at, sent.size()) == expected);
      scale_reference(arithmetic, expected.data(), expected.data(), expected.size());
      CHECK(rig.read(rig.bases[kSendBuffer].base + offset, sent.size()) == expected);
    }
    CHECK_CONTRACT(rig.net);
  }
}

TEST(what_stays_on_the_rank_is_copied_by_the_gpu_after_it_was_received) {
  GpuRig rig;
  CHECK(rig.run(Steps().receive(0).copy(0, 0, 0).send(0, 1), 9001, kSlots));
  for (const auto& [at, wanted] : rig.net.delivered) {
    const size_t offset = at - rig.bases[kReceiveBuffer].base;
    CHECK(rig.read(rig.bases[kSendBuffer].base + offset, wanted.size()) == wanted);
  }
  CHECK_CONTRACT(rig.net);
}

TEST(a_send_of_what_is_copied_waits_for_the_copy) {
  GpuRig rig;
  rig.net.watch = [&](const FakeEvent& event) {
    if (event.call != Call::kIsend) return;
    const size_t offset = event.data - rig.bases[kSendBuffer].base;
    const auto& wanted = rig.net.delivered[rig.bases[kReceiveBuffer].base + offset];
    CHECK(rig.read(event.data, wanted.size()) == wanted);
  };
  CHECK(rig.run(Steps().receive(0).copy(0, 0, 0).send(0, 1), 5000, kSlots));
}

TEST(nothing_is_consumed_while_the_gpu_has_not_got_to_it) {
  GpuRig rig;
  const Held held;
  CHECK(!rig.run(Steps().receive(0), 9001, kSlots, 20'000'000));
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kStall);
  CHECK_EQ(rig.net.count(Call::kConsumed), uint64_t{0});
  CHECK_LT(uint64_t{0}, rig.net.count(Call::kTest));
  const FlowReport& flow = rig.driver.picture()[0];
  CHECK_LT(uint64_t{0}, flow.arrived);  // whose fault it is not: the plugin's
  CHECK_EQ(flow.completed, uint64_t{0});
}

TEST(nothing_is_sent_on_while_its_copy_is_held_back) {
  GpuRig rig;
  const Held held;
  CHECK(!rig.run(Steps().copy(0, 0).send(0, 0), 9001, kSlots, 20'000'000));
  CHECK_EQ(rig.net.count(Call::kIsend), uint64_t{0});
}

TEST(a_call_of_the_driver_that_fails_ends_the_batch_by_name) {
  setenv("FAKECUDA_FAIL", "cuLaunchKernel:3:719", 1);
  GpuRig rig;
  CHECK(!rig.run(Steps().receive(0), 9001, kSlots));
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kGpu);
  CHECK_EQ(failed_call(rig.driver.fault()),
           "CUDA driver call cuLaunchKernel returned 719 (CUDA_ERROR_LAUNCH_FAILED) while receives "
           "were unpacked");
}

TEST(a_copy_that_fails_ends_the_batch_too) {
  GpuRig rig;
  const uint64_t so_far = fake_call<uint64_t(const char*)>("fakecuda_calls")("cuMemcpyAsync");
  setenv("FAKECUDA_FAIL", ("cuMemcpyAsync:" + std::to_string(so_far + 2) + ":1").c_str(), 1);
  CHECK(!rig.run(Steps().receive(0).copy(0, 0, 0), 9001, kSlots));
  CHECK_EQ(std::string(rig.driver.fault().call), std::string("cuMemcpyAsync"));
}

TEST(the_gpu_is_current_on_the_thread_that_drives) {
  test_gpu(0);
  WhereItRuns loop;
  ProgressThread thread(loop, 1);
  thread.start({0, 1, 0, 1'000'000'000, 0});
  while (thread.wait(1.0) == ProgressThread::State::kRunning) {
  }
  CHECK_EQ(loop.gpu, 1);
}

CHECK_MAIN()
