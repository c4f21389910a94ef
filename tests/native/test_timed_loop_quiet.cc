// The timed loop allocates nothing and formats no log line.
#include <cerrno>

#include "counted_allocations.h"
#include "engine/grouped_loop.h"
#include "engine/traced_loop.h"
#include "net/library.h"
#include "net/logger.h"
#include "rig.h"

using namespace tcpx;

namespace {

// Two channels to each of two peers over the null plugin, which allocates nothing itself.
struct NullRank {
  NullRank() : plugin(NULL_PLUGIN), connections(plugin.net(), 0) {
    plugin.init();
    for (int peer : {kPeer, kPeer + 1}) {
      for (int channel : {0, 1}) {
        const auto handle = connections.listen(peer, 0, channel);
        connections.add_send(peer, 0, channel, handle.data());
      }
    }
    connections.establish(1.0);
    for (int buffer : {kSendBuffer, kReceiveBuffer}) {
      memory[buffer].resize(1 << 16);
      connections.register_buffer(buffer, memory[buffer].data(), memory[buffer].size(), 1);
      bases[buffer] = {memory[buffer].data(), 1024};
    }
  }
  Plugin plugin;
  Connections connections;
  std::vector<uint8_t> memory[2];
  SlotBase bases[kBuffers] = {};
};

int allocations_of(TimedLoop& driver, const BatchPlan& plan, bool expected) {
  g_allocations = 0;
  g_counting = true;
  const bool went_well = driver.run(plan);
  g_counting = false;
  CHECK_EQ(went_well, expected);
  return g_allocations;
}

}  // namespace

TEST(allocations_are_counted_at_all) {
  g_counting = true;
  std::vector<int> some(100);
  g_counting = false;
  CHECK_EQ(g_allocations.load(), 1);
  CHECK_EQ(some[99], 0);
}

TEST(a_batch_allocates_nothing) {
  NullRank rank;
  TimedLoop driver(rank.plugin.net(), rank.connections, {});
  const BlockTable blocks[kBuffers] = {blocks_of({512, 512}), blocks_of({512, 512}), {}};
  const Steps steps =
      Steps().receive(0).send(0, 0, kChunk).copy(0, 1, 0, kWhole).receive_from(kPeer + 1, 1);
  driver.load(compile(steps.data(), steps.size(), blocks, 16, 2), rank.bases);
  driver.reserve(32);
  BatchPlan plan;
  plan.iterations = 32;
  plan.stall_ns = 1'000'000'000;
  CHECK_EQ(allocations_of(driver, plan, true), 0);
  CHECK_EQ(allocations_of(driver, plan, true), 0);
  CHECK_EQ(driver.sources().size(), 2u);
}

TEST(a_batch_that_is_traced_allocates_nothing) {
  NullRank rank;
  TracedLoop driver(rank.plugin.net(), rank.connections, {}, nullptr, nullptr, 16);
  const BlockTable blocks[kBuffers] = {blocks_of({512, 512}), blocks_of({512, 512}), {}};
  const Steps steps = Steps().receive(0).send(0, 0, kChunk).copy(0, 1, 0, kWhole);
  driver.load(compile(steps.data(), steps.size(), blocks, 16, 2), rank.bases);
  driver.reserve(32);
  CHECK_EQ(allocations_of(driver, {0, 32, 0, 1'000'000'000, 0}, true), 0);
  CHECK_EQ(driver.trace().size(), 16u);
}

TEST(a_batch_of_several_messages_a_chunk_allocates_nothing) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {256}, 64, 32);
  rig.net.max_receives = 8;
  rig.net.events.reserve(1 << 16);
  rig.net.busy = [calls = 0](const FakeComm&) mutable { return ++calls % 3 == 0; };
  GroupedLoop driver(rig.net, rig.connections, {}, nullptr, 8, 1);
  const BlockTable blocks[kBuffers] = {blocks_of({256}), blocks_of({256}), {}};
  const Steps steps = Steps().receive(0).send(0);
  driver.load(compile(steps.data(), steps.size(), blocks, 64, 2), rig.bases);
  driver.reserve(32);
  CHECK_EQ(allocations_of(driver, {0, 32, 0, 1'000'000'000, 0}, true), 0);
}

TEST(a_batch_that_computes_allocates_nothing) {
  NullRank rank;
  TimedLoop driver(rank.plugin.net(), rank.connections, {});
  const BlockTable blocks[kBuffers] = {blocks_of({512, 512}), blocks_of({512, 512}), {}};
  Steps steps;
  steps.row({3, kPeer, 0, kSendBuffer, 0, kReceiveBuffer, 0, 1, -1, 0, -1, 0});
  steps.row({4, -1, 0, kReceiveBuffer, 0, kSendBuffer, 1, 1, 0, kChunk, -1, 0});
  driver.load(compile(steps.data(), steps.size(), blocks, 16, 2, {kHalf, kAvg, 3}), rank.bases);
  driver.reserve(32);
  BatchPlan plan;
  plan.iterations = 32;
  plan.stall_ns = 1'000'000'000;
  CHECK_EQ(allocations_of(driver, plan, true), 0);
}

TEST(a_batch_that_fails_allocates_nothing_either) {
  // A send that waits for a receive on a lane of its own; the fake never completes the receive.
  Rig rig;
  rig.load(Steps().receive(0).send(0, 0, kChunk), {64}, 16, 2);
  rig.net.completes = [](const FakeRequest&) { return false; };
  rig.net.events.reserve(1 << 24);
  BatchPlan plan;
  plan.iterations = 2;
  plan.stall_ns = 20'000'000;
  CHECK_EQ(allocations_of(rig.driver, plan, false), 0);
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kStall);
}

TEST(a_chunk_of_a_wrong_size_allocates_nothing) {
  Rig rig;
  rig.load(Steps().receive(0), {64}, 16, 1);
  rig.net.reported_size = [](const FakeRequest& request) { return request.serial == 1 ? 7 : -1; };
  rig.net.events.reserve(1000);
  BatchPlan plan;
  plan.iterations = 1;
  plan.stall_ns = 1'000'000'000;
  CHECK_EQ(allocations_of(rig.driver, plan, false), 0);
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kSize);
}

TEST(what_a_plugin_logs_in_a_batch_is_counted_and_only_its_first_warning_is_looked_at) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {64}, 16, 2);
  const NetLogger log = plugin_log::function();
  log(kNetLogWarn, 0, "before", 1, "kept");
  int warnings = 0;
  rig.net.completes = [&](const FakeRequest&) {
    // Of the later ones the text is not looked at: it would fault if it were.
    const char* text = warnings++ == 0 ? "the first" : reinterpret_cast<const char*>(0x10);
    log(kNetLogWarn, 0, "within", 2, "%s", text);
    log(kNetLogInfo, 0, "within", 3, "%s", reinterpret_cast<const char*>(0x10));
    return true;
  };
  const uint64_t before = plugin_log::warnings();
  CHECK(rig.run(2));
  CHECK_EQ(plugin_log::warnings() - before, 16u);
  CHECK_EQ(plugin_log::quote(plugin_log::last_warning()),
           std::string("; the plugin said, and not only once: the first"));
  log(kNetLogWarn, 0, "after", 3, "kept again");
  const auto lines = plugin_log::recent_lines();
  CHECK_EQ(lines.size(), 2u);
  CHECK_EQ(lines.back(), std::string("kept again"));
}

CHECK_MAIN()
