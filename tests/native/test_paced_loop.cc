// The paced loop: what begins an iteration waits for its instant, an answer waits for none.
#include "engine/paced_loop.h"
#include "rig.h"

using namespace tcpx;

namespace {

constexpr int64_t kHour = 3'600'000'000'000;

BatchPlan batch_of(uint64_t iterations) {
  BatchPlan plan;
  plan.iterations = iterations;
  plan.stall_ns = 10'000'000'000;
  return plan;
}

void load(TimedLoop& loop, Rig& rig, const Steps& steps) {
  rig.load(steps, {64}, 16, 32);  // registers
  const BlockTable blocks[kBuffers] = {blocks_of({64}), blocks_of({64}), {}};
  loop.load(compile(steps.data(), steps.size(), blocks, 16, 2), rig.bases);
  loop.reserve(32);
}

}  // namespace

TEST(no_iteration_begins_before_its_instant) {
  constexpr int64_t kInterval = 200'000;
  Rig rig;
  PacedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr);
  loop.pace(kInterval);
  load(loop, rig, Steps().receive(0).send(0));
  for (int batch = 0; batch < 2; ++batch) {
    CHECK(loop.run(batch_of(10)));
    const BatchStamps& stamps = loop.stamps();
    for (int64_t i = 0; i < 10; ++i) {
      CHECK(stamps.send_done[static_cast<size_t>(i)] >= stamps.start + i * kInterval);
    }
  }
}

TEST(an_answer_goes_as_soon_as_it_can) {
  Rig rig;
  PacedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr);
  loop.pace(kHour);
  load(loop, rig, Steps().receive(0).send(0, 0, kWhole));
  CHECK(loop.run(batch_of(10)));  // else it would stall
}

TEST(no_iteration_waits_for_those_before_until_the_window_is_full) {
  TimedLoopLimits limits;
  limits.window_send = 6;
  Rig rig;
  PacedLoop loop(rig.net, rig.connections, limits, nullptr, nullptr);
  loop.pace(1);
  load(loop, rig, Steps().receive(0).send(0));
  // Of 2 chunks an iteration on each of 2 channels, nothing is sent until 3 iterations are posted.
  rig.net.completes = [&](const FakeRequest& request) {
    return !request.comm->sends || rig.net.count(Call::kIsend) >= 12;
  };
  CHECK(loop.run(batch_of(10)));  // else it would stall
  CHECK(rig.net.breaches.empty());
  for (int channel = 0; channel < 2; ++channel) {
    CHECK_EQ(rig.comm(Direction::kSend, channel)->most_outstanding, 6u);
  }
}

TEST(answers_do_not_wait_for_those_before_to_be_sent) {
  Rig rig;
  PacedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr);
  loop.pace(kHour);
  load(loop, rig, Steps().receive(0).send(0, 0, kWhole));
  rig.net.completes = [&](const FakeRequest& request) {
    return !request.comm->sends || rig.net.count(Call::kIsend) >= 12;
  };
  CHECK(loop.run(batch_of(10)));
}

CHECK_MAIN()
