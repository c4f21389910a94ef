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
  PacedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr, kInterval);
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
  PacedLoop loop(rig.net, rig.connections, {}, nullptr, nullptr, kHour);
  load(loop, rig, Steps().receive(0).send(0, 0, kWhole));
  CHECK(loop.run(batch_of(10)));  // else it would stall
}

CHECK_MAIN()
