// The timed loop where steps compute: receives land in staging and are reduced into their place, in
// turn with receives that are not; scaling goes with the copies.
#include <set>

#include "rig.h"

using namespace tcpx;

namespace {

constexpr size_t kBytes = 400;  // of a step: 100 floats

Steps reduces() {
  // The reduction of block 0 of the send buffer and what comes, into the receive buffer; then a
  // plain receive; then the first one scaled into block 1 of the send buffer.
  return Steps()
      .row({3, kPeer, 0, kSendBuffer, 0, kReceiveBuffer, 0, 1, -1, 0, -1, 0})
      .receive(1)
      .row({4, -1, 0, kReceiveBuffer, 0, kSendBuffer, 1, 1, 0, kChunk, -1, 0});
}

struct ReducingRig : Rig {
  explicit ReducingRig(TimedLoopLimits limits = {}) : Rig(2, 1, limits) {
    net.completes = [this](const FakeRequest& request) {
      if (request.tests < slow) return false;
      // What the peer sends: the number of the request on its channel.
      std::vector<float> sent(request.bytes / sizeof(float), static_cast<float>(request.serial));
      memcpy(request.data, sent.data(), request.bytes);
      staged += !lies_in(request.data, kReceiveBuffer);
      return true;
    };
  }
  bool lies_in(const uint8_t* data, int buffer) const {
    return data >= memory[buffer].data() && data < memory[buffer].data() + memory[buffer].size();
  }
  void prepare(uint64_t chunk_bytes, int op, double factor) {
    arithmetic = make_arithmetic(kFloat, op, factor);
    for (int buffer : {kSendBuffer, kReceiveBuffer}) {
      memory[buffer].assign(kStride * kSlots, 0);
      connections.register_buffer(buffer, memory[buffer].data(), memory[buffer].size(),
                                  kNetPtrHost);
      bases[buffer] = {memory[buffer].data(), kStride};
    }
    again(chunk_bytes);
  }
  void again(uint64_t chunk_bytes) {
    const BlockTable blocks[kBuffers] = {
        blocks_of({kBytes, kBytes}), blocks_of({kBytes, kBytes}), {}};
    const Steps steps = reduces();
    driver.load(compile(steps.data(), steps.size(), blocks, chunk_bytes, 2, arithmetic), bases);
    driver.reserve(kSlots);
    for (uint64_t slot = 0; slot < kSlots; ++slot) {
      for (size_t i = 0; i < 100; ++i) at(kSendBuffer, slot, i) = 1000;
    }
  }
  float& at(int buffer, uint64_t slot, size_t i) {
    return reinterpret_cast<float*>(memory[buffer].data() + slot * kStride)[i];
  }
  Arithmetic arithmetic;
  int slow = 0;  // tests of a request that say no
  uint64_t staged = 0;
};

}  // namespace

TEST(what_comes_is_reduced_with_the_local_operand_chunk_by_chunk) {
  for (const uint64_t chunk : {40, 400, 4096}) {
    ReducingRig rig;
    rig.prepare(chunk, kSum, 1);
    CHECK(rig.run(8));
    const uint64_t chunks = (kBytes + chunk - 1) / chunk;
    CHECK_EQ(rig.staged, 8 * chunks);
    for (uint64_t slot = 0; slot < 8; ++slot) {
      for (size_t i = 0; i < 100; ++i) {
        const uint64_t c = i * 4 / chunk;
        // Requests on the channel before it: two steps an iteration, their chunks on c % 2.
        const uint64_t share = (chunks + 1 - c % 2) / 2;
        const auto serial = static_cast<float>(slot * 2 * share + c / 2);
        CHECK_EQ(rig.at(kReceiveBuffer, slot, i), 1000 + serial);
        CHECK_EQ(rig.at(kReceiveBuffer, slot, 100 + i), serial + static_cast<float>(share));
        CHECK_EQ(rig.at(kSendBuffer, slot, 100 + i), 1000 + serial);
      }
    }
    CHECK_CONTRACT(rig.net);
  }
}

TEST(a_scaling_divides_for_an_average_and_multiplies_else) {
  for (const int op : {kAvg, kMulsum}) {
    ReducingRig rig;
    rig.prepare(400, op, 4);
    CHECK(rig.run(1));
    CHECK_EQ(rig.at(kReceiveBuffer, 0, 7), 1000.0f);
    CHECK_EQ(rig.at(kSendBuffer, 0, 107), op == kAvg ? 250.0f : 4000.0f);
  }
}

TEST(receives_that_are_reduced_fill_a_window_and_never_share_staging) {
  TimedLoopLimits limits;
  limits.window_receive = 5;
  ReducingRig rig(limits);
  rig.slow = 9;
  rig.prepare(4, kSum, 1);
  std::set<uint8_t*> outstanding;
  uint64_t most = 0;
  rig.net.watch = [&](const FakeEvent& event) {
    if (event.comm->sends || rig.lies_in(event.data, kReceiveBuffer)) return;
    if (event.call == Call::kIrecv) CHECK(outstanding.insert(event.data).second);
    if (event.call == Call::kConsumed) CHECK_EQ(outstanding.erase(event.data), 1u);
    most = std::max<uint64_t>(most, outstanding.size());
  };
  CHECK(rig.run(4));
  CHECK_EQ(most, 10u);  // two channels
  CHECK_CONTRACT(rig.net);
}

TEST(staging_grows_between_rows_and_is_deregistered_at_the_end) {
  ReducingRig rig;
  rig.prepare(40, kSum, 1);
  CHECK(rig.run(2));
  const auto registered = rig.net.registrations.size();
  rig.again(40);
  CHECK_EQ(rig.net.registrations.size(), registered);
  rig.again(400);  // one channel has a chunk, and so larger ones
  CHECK_EQ(rig.net.registrations.size(), registered + 1);
  CHECK_EQ(rig.net.deregistered, 1);
  CHECK(rig.run(2));
  rig.connections.close();
  CHECK_EQ(static_cast<size_t>(rig.net.deregistered), rig.net.registrations.size());
  CHECK_CONTRACT(rig.net);
}

TEST(a_receive_of_another_size_is_not_reduced) {
  ReducingRig rig;
  rig.prepare(400, kSum, 1);
  rig.net.reported_size = [](const FakeRequest& r) { return static_cast<int>(r.bytes) - 4; };
  CHECK(!rig.run(1));
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kSize);
  CHECK_EQ(rig.at(kReceiveBuffer, 0, 0), 0.0f);
}

CHECK_MAIN()
