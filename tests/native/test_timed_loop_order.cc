// What waits for what in the timed loop: iterations, dependencies, local copies, stamps.
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "rig.h"

using namespace tcpx;

namespace {

constexpr uint64_t kPiece = 16;  // bytes a chunk

// Completes in an order that no transport would choose: a new favourite channel every few tests,
// the others starve meanwhile.
std::function<bool(const FakeRequest&)> adversary(uint32_t seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  auto favourite = std::make_shared<std::pair<const FakeComm*, int>>(nullptr, 0);
  return [=](const FakeRequest& r) {
    if (favourite->second-- <= 0) {
      *favourite = {r.comm, int((*random)() % 40)};
    }
    return favourite->first == r.comm || (*random)() % 16 == 0;
  };
}

// The instants (as counts of events) at which each chunk, by (iteration, offset), was posted and
// done: what a dependency is judged by.
struct Instants {
  std::map<std::tuple<bool, uint64_t, uint64_t>, size_t> posted;  // sends?, iteration, offset
  std::map<std::tuple<bool, uint64_t, uint64_t>, size_t> done;

  explicit Instants(const Rig& rig) {
    for (size_t i = 0; i < rig.net.events.size(); ++i) {
      const FakeEvent& e = rig.net.events[i];
      const auto key = std::make_tuple(e.comm->sends, rig.iteration_of(e), rig.offset_of(e));
      if (e.call == Call::kIsend || e.call == Call::kIrecv) posted[key] = i;
      // A receive is usable when it is consumed, a send reusable when it is done.
      if (e.call == Call::kConsumed || (e.call == Call::kTest && e.comm->sends && e.moved)) {
        done[key] = i;
      }
    }
  }
};

}  // namespace

TEST(a_chunk_waits_for_the_same_chunk_only) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Rig rig;
    rig.load(Steps().receive(0).send(0, 0, kChunk), {kPiece * 9 + 3}, kPiece, 6);
    rig.net.completes = adversary(seed);
    CHECK(rig.run(6));
    const Instants at(rig);
    bool overtakes = false;  // some chunk is sent on while a later one has yet to arrive
    for (uint64_t i = 0; i < 6; ++i) {
      for (uint64_t c = 0; c < 10; ++c) {
        CHECK_LT(at.done.at({false, i, c * kPiece}), at.posted.at({true, i, c * kPiece}));
        overtakes |= at.posted.at({true, i, c * kPiece}) < at.done.at({false, i, 9 * kPiece});
      }
    }
    CHECK(overtakes);
    CHECK_CONTRACT(rig.net);
  }
}

TEST(a_step_that_waits_for_a_whole_one_waits_for_every_channel_of_it) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    for (const int channels : {1, 2, 3, 5}) {
      Rig rig(channels);
      rig.load(Steps().receive(0).send(1, 0, kWhole), {kPiece * 4, kPiece * 3}, kPiece, 8);
      rig.net.completes = adversary(seed);
      CHECK(rig.run(8));
      const Instants at(rig);
      for (uint64_t i = 0; i < 8; ++i) {
        for (uint64_t c = 0; c < 4; ++c) {
          for (uint64_t s = 4; s < 7; ++s) {
            CHECK_LT(at.done.at({false, i, c * kPiece}), at.posted.at({true, i, s * kPiece}));
          }
        }
      }
      CHECK_CONTRACT(rig.net);
    }
  }
}

// Receives of iteration 1 may be complete on one channel while iteration 0 is not on another.
TEST(a_later_iteration_cannot_stand_in_for_a_missing_chunk) {
  Rig rig(2);
  rig.load(Steps().receive(0).send(0, 0, kWhole), {kPiece * 2}, kPiece, 2);
  rig.net.completes = [&](const FakeRequest& r) {
    return r.comm != rig.comm(Direction::kReceive, 1);
  };
  CHECK(!rig.run(2, 30));
  CHECK_EQ(rig.comm(Direction::kReceive, 0)->consumed, 2u);
  CHECK_EQ(rig.comm(Direction::kSend, 0)->posted, 0u);
  CHECK_EQ(rig.comm(Direction::kSend, 1)->posted, 0u);
}

TEST(both_predecessors_are_waited_for) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    Rig rig;
    // The receive into block 1 waits for the receive into block 0, the send for both.
    rig.load(Steps().receive(0).receive(1).send(1, 1, kChunk).second_pred(0, kWhole),
             {kPiece * 3, kPiece * 5}, kPiece, 4);
    rig.net.completes = adversary(seed);
    CHECK(rig.run(4));
    const Instants at(rig);
    for (uint64_t i = 0; i < 4; ++i) {
      for (uint64_t c = 3; c < 8; ++c) {
        CHECK_LT(at.done.at({false, i, c * kPiece}), at.posted.at({true, i, c * kPiece}));
        for (uint64_t whole = 0; whole < 3; ++whole) {
          CHECK_LT(at.done.at({false, i, whole * kPiece}), at.posted.at({true, i, c * kPiece}));
        }
      }
    }
    CHECK_CONTRACT(rig.net);
  }
}

TEST(empty_steps_hold_back_what_waits_for_them) {
  for (const int wait : {kChunk, kWhole}) {
    Rig rig;
    rig.load(Steps().receive(0).send(0, 0, wait), {0}, kPiece, 3);
    rig.net.completes = [](const FakeRequest& r) { return r.tests > 3; };
    CHECK(rig.run(3));
    CHECK_EQ(rig.net.count(Call::kIsend), 3u);
    for (size_t i = 0, received = 0, sent = 0; i < rig.net.events.size(); ++i) {
      received += rig.net.events[i].call == Call::kConsumed;
      sent += rig.net.events[i].call == Call::kIsend;
      CHECK_LE(sent, received);
    }
    CHECK_CONTRACT(rig.net);
  }
}

TEST(sends_wait_for_the_iteration_before_and_receives_do_not) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {kPiece * 4}, kPiece, 6);
  rig.net.completes = [&](const FakeRequest& r) { return r.comm->sends; };
  CHECK(!rig.run(6, 30));
  std::set<uint64_t> sent, received;
  for (const FakeEvent& e : rig.net.events) {
    if (e.call == Call::kIsend) sent.insert(rig.iteration_of(e));
    if (e.call == Call::kIrecv) received.insert(rig.iteration_of(e));
  }
  CHECK(sent == std::set<uint64_t>({0}));
  CHECK(received == std::set<uint64_t>({0, 1, 2, 3, 4, 5}));
  CHECK_CONTRACT(rig.net);
}

TEST(an_iteration_is_complete_when_all_its_sends_and_receives_are) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    Rig rig(3);
    rig.load(Steps().receive(0).send(0), {kPiece * 7}, kPiece, 5);
    rig.net.completes = adversary(seed);
    CHECK(rig.run(5));
    const Instants at(rig);
    for (uint64_t i = 1; i < 5; ++i) {
      for (uint64_t before = 0; before < 7; ++before) {
        for (const bool sends : {false, true}) {
          CHECK_LT(at.done.at({sends, i - 1, before * kPiece}), at.posted.at({true, i, 0}));
        }
      }
    }
  }
}

TEST(stamps_are_in_order_and_say_what_a_rank_does_not_do) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {kPiece * 7}, kPiece, 20);
  rig.net.completes = adversary(3);
  const int64_t before = now_ns();
  CHECK(rig.run(20));
  const int64_t after = now_ns();
  const BatchStamps& s = rig.driver.stamps();
  CHECK_LE(before, s.start);
  CHECK(!s.late);
  int64_t last = s.start;
  for (int i = 0; i < 20; ++i) {
    CHECK_LE(last, s.end[i]);
    CHECK_LE(s.start, s.receive_done[i]);
    CHECK_EQ(std::max(s.send_done[i], s.receive_done[i]), s.end[i]);
    last = s.end[i];
  }
  CHECK_LE(last, after);

  Rig sender;
  sender.load(Steps().send(0), {kPiece}, kPiece, 3);
  CHECK(sender.run(3));
  for (int i = 0; i < 3; ++i) {
    CHECK_EQ(sender.driver.stamps().receive_done[i], -1);
    CHECK_EQ(sender.driver.stamps().send_done[i], sender.driver.stamps().end[i]);
  }
}

// Between the last of a source's chunks in an iteration and whatever happens next.
TEST(each_of_several_sources_is_stamped_when_its_last_bytes_are_there) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const std::vector<int> peers = {7, 3};  // not in order
    Rig rig(2, 1, {}, peers);
    rig.load(Steps().receive_from(7, 0).receive_from(3, 1), {kPiece * 5, kPiece * 3}, kPiece, 6);
    rig.net.completes = adversary(seed);
    const size_t before = rig.net.events.size();
    std::vector<int64_t> happened;
    rig.net.watch = [&](const FakeEvent&) { happened.push_back(now_ns()); };
    CHECK(rig.run(6));
    CHECK(rig.driver.sources() == std::vector<int>({3, 7}));
    CHECK(rig.driver.source_lanes() == std::vector<int>({0, 0}));
    const BatchStamps& s = rig.driver.stamps();
    for (uint64_t i = 0; i < 6; ++i) {
      for (const int source : {0, 1}) {
        size_t last = 0;
        for (size_t e = 0; e < happened.size(); ++e) {
          const FakeEvent& event = rig.net.events[before + e];
          if (event.call != Call::kConsumed || rig.iteration_of(event) != i) continue;
          const int peer = source == 0 ? 3 : 7;
          for (const int channel : {0, 1}) {
            if (event.comm == rig.comm(Direction::kReceive, channel, 0, peer)) last = e;
          }
        }
        CHECK_LE(happened[last], s.source_done[2 * i + source]);
        if (last + 1 < happened.size()) CHECK_LE(s.source_done[2 * i + source], happened[last + 1]);
      }
      CHECK_LE(std::max(s.source_done[2 * i], s.source_done[2 * i + 1]), s.receive_done[i]);
    }
  }
}

// A schedule that stamps a part of itself has it on a lane of its own.
TEST(sources_of_two_lanes_are_told_apart_though_they_are_one_peer) {
  Rig rig(1, 2);
  rig.load(Steps().receive(0, -1, kChunk, 1).receive(1), {kPiece * 3, kPiece * 2}, kPiece, 4);
  CHECK(rig.run(4));
  CHECK(rig.driver.sources() == std::vector<int>({kPeer, kPeer}));
  CHECK(rig.driver.source_lanes() == std::vector<int>({0, 1}));
  const BatchStamps& s = rig.driver.stamps();
  for (uint64_t i = 0; i < 4; ++i) {
    for (const int source : {0, 1}) CHECK(s.source_done[2 * i + source] >= 0);
    CHECK_LE(std::max(s.source_done[2 * i], s.source_done[2 * i + 1]), s.receive_done[i]);
  }
}

TEST(a_single_source_needs_no_stamp_of_its_own) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {kPiece * 7}, kPiece, 3);
  CHECK(rig.run(3));
  CHECK(rig.driver.sources().empty());
  CHECK(rig.driver.stamps().source_done.empty());
}

TEST(a_batch_starts_at_the_agreed_instant_or_is_marked_late) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {kPiece}, kPiece, 1);
  int64_t first_call = 0;
  rig.net.watch = [&](const FakeEvent&) {
    if (first_call == 0) first_call = now_ns();
  };
  BatchPlan plan;
  plan.iterations = 1;
  plan.stall_ns = 1'000'000'000;
  plan.start_ns = now_ns() + 20'000'000;
  CHECK(rig.driver.run(plan));
  CHECK_LE(plan.start_ns, first_call);
  CHECK_EQ(rig.driver.stamps().start, plan.start_ns);
  plan.start_ns = now_ns() - 1'000'000;
  CHECK(rig.driver.run(plan));
  CHECK(rig.driver.stamps().late);
  CHECK_EQ(rig.driver.stamps().start, plan.start_ns);
}

TEST(a_rank_that_loses_its_core_before_the_start_is_late) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {kPiece}, kPiece, 1);
  signal(SIGALRM, [](int) { usleep(40'000); });  // from 5 ms on, or later: beyond the start
  const itimerval once{{0, 0}, {0, 5'000}};
  BatchPlan plan;
  plan.iterations = 1;
  plan.stall_ns = 1'000'000'000;
  plan.start_ns = now_ns() + 20'000'000;
  setitimer(ITIMER_REAL, &once, nullptr);
  CHECK(rig.driver.run(plan));
  CHECK(rig.driver.stamps().late);
  CHECK_EQ(rig.driver.stamps().start, plan.start_ns);
}

TEST(batches_begin_at_their_slot_and_follow_one_another) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {kPiece * 3}, kPiece, 4);
  BatchPlan plan;
  plan.stall_ns = 1'000'000'000;
  for (const uint64_t first : {0, 5, 2}) {
    plan.first_slot = first;
    plan.iterations = 4;
    const size_t seen = rig.net.events.size();
    CHECK(rig.driver.run(plan));
    std::set<uint64_t> slots;
    for (size_t i = seen; i < rig.net.events.size(); ++i) {
      slots.insert(rig.iteration_of(rig.net.events[i]));
    }
    CHECK(slots == std::set<uint64_t>({first, first + 1, first + 2, first + 3}));
  }
  CHECK_CONTRACT(rig.net);
}

TEST(a_copy_moves_the_received_bytes_before_they_are_sent_on) {
  Rig rig;
  rig.load(Steps().receive(0).copy(0, 1, 0, kChunk).send(1, 1, kChunk), {kPiece * 5, kPiece * 5},
           kPiece, 3);
  // The bytes arrive with done, and are looked at when they are sent.
  rig.net.completes = [&](const FakeRequest& r) {
    if (!r.comm->sends) {
      for (size_t i = 0; i < r.bytes; ++i) r.data[i] = uint8_t(r.serial * 31 + i + 1);
    }
    return true;
  };
  std::map<uint64_t, uint64_t> judged;
  rig.net.watch = [&](const FakeEvent& e) {
    if (e.call != Call::kIsend) return;
    for (size_t i = 0; i < kPiece; ++i) CHECK_EQ(e.data[i], uint8_t(e.serial * 31 + i + 1));
    ++judged[rig.iteration_of(e)];
  };
  CHECK(rig.run(3));
  CHECK(judged == (std::map<uint64_t, uint64_t>{{0, 5}, {1, 5}, {2, 5}}));
  CHECK_CONTRACT(rig.net);
}

TEST(a_pause_holds_back_what_waits_for_it_in_each_iteration_and_nothing_else) {
  constexpr int64_t kPauseNs = 300'000;
  Rig rig;
  rig.load(
      Steps().receive(0).pause(kPauseNs / 1000, 0).pause(kPauseNs / 1000, 1).send(0, 2, kWhole),
      {64}, 64, 4);
  CHECK(rig.run(4));
  const BatchStamps& stamps = rig.driver.stamps();
  for (size_t i = 0; i < 4; ++i) {
    CHECK(stamps.send_done[i] >= stamps.start + static_cast<int64_t>(i + 1) * 2 * kPauseNs);
    CHECK(stamps.receive_done[i] < stamps.send_done[i]);
  }
}

TEST(a_rank_without_a_part_is_complete_at_once) {
  Rig rig;
  rig.load(Steps(), {}, kPiece, 4);
  CHECK(rig.run(4, 50));
  for (int i = 0; i < 4; ++i) {
    CHECK_EQ(rig.driver.stamps().end[i], rig.driver.stamps().start);
    CHECK_EQ(rig.driver.stamps().send_done[i], -1);
  }
  CHECK_EQ(rig.net.calls, 0u);
}

TEST(two_lanes_keep_windows_of_their_own) {
  Rig rig(1, 2);
  rig.load(Steps().receive(0, -1, kChunk, 0).receive(1, -1, kChunk, 1), {kPiece * 40, kPiece * 40},
           kPiece, 1);
  rig.net.completes = [&](const FakeRequest& r) {
    return r.comm == rig.comm(Direction::kReceive, 0, 1);
  };
  CHECK(!rig.run(1, 30));
  CHECK_EQ(rig.comm(Direction::kReceive, 0, 0)->posted, 16u);
  CHECK_EQ(rig.comm(Direction::kReceive, 0, 1)->consumed, 40u);
  CHECK_CONTRACT(rig.net);
}

CHECK_MAIN()

// Turn 1 receives nothing, turn 2 does nothing at all, turn 3 waits for what it receives itself.
TEST(iterations_take_turns_each_with_its_own_steps) {
  const std::vector<Steps> turns = {Steps().receive(0).send(1), Steps().send(0), Steps(),
                                    Steps().receive(1).send(0, 0, kWhole).receive(0)};
  constexpr uint64_t kIterations = 11;
  for (const uint64_t first : {0, 2, 3, 7}) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
      Rig rig;
      rig.load(turns, {kPiece * 3, kPiece + 1}, kPiece, kIterations);
      rig.net.completes = adversary(seed);
      BatchPlan plan;
      plan.first_slot = first;
      plan.iterations = kIterations;
      plan.stall_ns = 2'000'000'000;
      CHECK(rig.driver.run(plan));
      std::map<std::pair<bool, uint64_t>, uint64_t> chunks;  // sends?, slot
      const Instants at(rig);
      for (const auto& [key, when] : at.posted) {
        ++chunks[{std::get<0>(key), std::get<1>(key)}];
      }
      const BatchStamps& stamps = rig.driver.stamps();
      for (uint64_t i = 0; i < kIterations; ++i) {
        const uint64_t turn = (first + i) % turns.size();
        const uint64_t sent[] = {2, 3, 0, 3};
        const uint64_t received[] = {3, 0, 0, 5};
        CHECK_EQ((chunks[{true, first + i}]), sent[turn]);
        CHECK_EQ((chunks[{false, first + i}]), received[turn]);
        CHECK_EQ(stamps.receive_done[i] >= 0, received[turn] > 0);
        CHECK_EQ(stamps.send_done[i] >= 0, sent[turn] > 0);
        CHECK(stamps.end[i] >= (i == 0 ? stamps.start : stamps.end[i - 1]));
        if (turn != 3) continue;
        for (const uint64_t offset : {kPiece * 3, kPiece * 4}) {
          CHECK((at.done.at({false, first + i, offset}) < at.posted.at({true, first + i, 0})));
        }
      }
    }
  }
}

TEST(a_turn_that_this_rank_has_no_part_in_ends_with_the_one_before_it) {
  Rig rig;
  rig.load({Steps(), Steps().send(0), Steps()}, {kPiece}, kPiece, 6);
  CHECK(rig.run(6));
  const BatchStamps& stamps = rig.driver.stamps();
  CHECK_EQ(stamps.end[0], stamps.start);
  CHECK_EQ(stamps.end[2], stamps.end[1]);
  CHECK_EQ(stamps.end[3], stamps.end[1]);
  CHECK_EQ(stamps.end[5], stamps.end[4]);
}
