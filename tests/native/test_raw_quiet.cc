// What the raw peer's loop must not do while it runs a batch.
#include "counted_allocations.h"
#include "raw_rig.h"

using namespace tcpx;

namespace {

constexpr uint64_t kIterations = RawRank::kSlots;
constexpr uint64_t kBytes = 100'003;

}  // namespace

TEST(a_batch_allocates_nothing) {
  for (const bool two_way : {false, true}) {
    for (const int spins : {kSpins, kSleeps}) {
      RawPair pair(on_lo(2, two_way), spins);
      const Steps steps = Steps().receive(0).copy(0, 1, 0, kChunk).send(0);
      for (RawRank& rank : pair.ranks) rank.load(steps, {kBytes, kBytes}, 3000);
      std::atomic<int> ready{0}, done{0};
      bool well[2] = {};
      const auto side = [&](int rank) {
        ++ready;
        while (!g_counting) std::this_thread::yield();
        well[rank] = pair.ranks[rank].loop.run(batch_of(kIterations));
        ++done;
        while (done < 2) std::this_thread::yield();
      };
      std::thread first(side, 0), second(side, 1);
      while (ready < 2) std::this_thread::yield();
      g_allocations = 0;
      g_counting = true;
      while (done < 2) std::this_thread::yield();
      g_counting = false;
      first.join();
      second.join();
      CHECK(well[0] && well[1]);
      CHECK_EQ(g_allocations.load(), 0);
    }
  }
}

TEST(a_batch_that_fails_allocates_nothing_either) {
  RawPair pair(on_lo(2), kSleeps);
  pair.ranks[0].load(Steps().receive(0).send(0), {kBytes}, 3000);
  g_allocations = 0;
  g_counting = true;
  const bool well = pair.ranks[0].loop.run(batch_of(2, 20));
  g_counting = false;
  CHECK(!well);
  CHECK_EQ(g_allocations.load(), 0);
}

TEST(allocations_are_counted_at_all) {
  g_counting = true;
  std::vector<int> some(100);
  g_counting = false;
  CHECK_EQ(g_allocations.load(), 1);
  CHECK_EQ(some[99], 0);
}

CHECK_MAIN()
