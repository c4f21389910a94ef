// Windows of the timed loop: how many requests are posted, which is tested, which is consumed.
#include <map>
#include <random>
#include <set>

#include "rig.h"

using namespace tcpx;

namespace {

// 40 chunks a direction and channel in one iteration.
void load_long(Rig& rig, uint64_t iterations = 1) {
  rig.load(Steps().receive(0).send(0), {1280}, 16, iterations);
}

}  // namespace

TEST(a_window_is_filled_and_never_exceeded) {
  Rig rig;
  load_long(rig);
  rig.net.completes = [](const FakeRequest&) { return false; };
  CHECK(!rig.run(1, 30));
  for (int channel : {0, 1}) {
    CHECK_EQ(rig.comm(Direction::kReceive, channel)->posted, 16u);
    CHECK_EQ(rig.comm(Direction::kSend, channel)->posted, 12u);
  }
  CHECK_CONTRACT(rig.net);
}

TEST(smaller_windows_are_kept_through_a_whole_batch) {
  Rig rig(2, 1, {3, 5, 0});
  load_long(rig);
  std::mt19937 random(7);
  rig.net.completes = [&](const FakeRequest&) { return random() % 4 == 0; };
  CHECK(rig.run(1));
  for (int channel : {0, 1}) {
    CHECK_EQ(rig.comm(Direction::kReceive, channel)->most_outstanding, 5u);
    CHECK_EQ(rig.comm(Direction::kSend, channel)->most_outstanding, 3u);
  }
  CHECK_CONTRACT(rig.net);
}

TEST(windows_that_no_plugin_could_keep_are_refused) {
  FakeNet net;
  Connections connections(net, 0);
  CHECK_THROWS(TimedLoop(net, connections, {12, 17, 0}), std::invalid_argument, "17");
  CHECK_THROWS(TimedLoop(net, connections, {0, 16, 0}), std::invalid_argument, "0");
}

TEST(one_done_frees_one_slot) {
  Rig rig(1);
  load_long(rig);
  int budget = 1;
  rig.net.completes = [&](const FakeRequest& r) { return !r.comm->sends && budget-- > 0; };
  CHECK(!rig.run(1, 30));
  const FakeComm* comm = rig.comm(Direction::kReceive, 0);
  CHECK_EQ(comm->done, 1u);
  CHECK_EQ(comm->consumed, 1u);
  CHECK_EQ(comm->posted, 17u);
  CHECK_EQ(rig.comm(Direction::kSend, 0)->posted, 12u);
  CHECK_CONTRACT(rig.net);
}

TEST(only_the_oldest_request_is_tested_and_never_after_done) {
  Rig rig(4);
  load_long(rig, 8);
  std::mt19937 random(11);
  rig.net.completes = [&](const FakeRequest&) { return random() % 3 == 0; };
  CHECK(rig.run(8));
  CHECK_EQ(rig.net.count(Call::kIrecv), 8u * 80);
  CHECK_EQ(rig.net.count(Call::kIsend), 8u * 80);
  CHECK_EQ(rig.net.count(Call::kTest), 16u * 80);  // done, once each
  CHECK_CONTRACT(rig.net);
}

TEST(every_receive_is_consumed_once_in_order_after_done) {
  Rig rig;
  load_long(rig, 4);
  std::mt19937 random(13);
  rig.net.completes = [&](const FakeRequest&) { return random() % 3 == 0; };
  CHECK(rig.run(4));
  CHECK_EQ(rig.net.count(Call::kConsumed), 4u * 80);
  for (int channel : {0, 1}) {
    const FakeComm* comm = rig.comm(Direction::kReceive, channel);
    CHECK_EQ(comm->consumed, comm->posted);
    CHECK_EQ(comm->done, comm->posted);
  }
  CHECK_CONTRACT(rig.net);
}

TEST(empty_receives_are_consumed_too) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {0}, 16, 20);
  CHECK(rig.run(20));
  CHECK_EQ(rig.net.count(Call::kConsumed), 20u);
  CHECK_EQ(rig.comm(Direction::kReceive, 0)->consumed, 20u);
  CHECK_EQ(rig.comm(Direction::kReceive, 1)->posted, 0u);
  CHECK_CONTRACT(rig.net);
}

TEST(a_plugin_without_consumed_is_not_asked_for_it) {
  Rig rig;
  rig.net.consumed_offered = false;
  load_long(rig);
  rig.net.watch = [](const FakeEvent& e) {  // such a plugin frees a receive at done
    if (e.call == Call::kTest && e.moved) e.comm->consumed = e.comm->done;
  };
  CHECK(rig.run(1));
  CHECK_EQ(rig.net.count(Call::kConsumed), 0u);
  CHECK_EQ(rig.comm(Direction::kReceive, 0)->done, 40u);
  CHECK_CONTRACT(rig.net);
}

TEST(busy_is_tried_again_with_the_same_chunk) {
  Rig rig;
  load_long(rig);
  std::map<const FakeComm*, int> turns;
  rig.net.busy = [&](const FakeComm& comm) { return ++turns[&comm] % 3 != 0; };
  CHECK(rig.run(1));
  std::map<const FakeComm*, const uint8_t*> refused;
  uint64_t busy = 0;
  for (const FakeEvent& e : rig.net.events) {
    if (e.call != Call::kIsend && e.call != Call::kIrecv) continue;
    if (refused.count(e.comm) != 0) CHECK_EQ(refused[e.comm], e.data);
    refused.erase(e.comm);
    if (e.moved) continue;
    refused[e.comm] = e.data;
    ++busy;
  }
  CHECK_EQ(busy, 2u * 160);
  CHECK_CONTRACT(rig.net);
}

TEST(between_two_posts_of_a_flow_every_other_flow_is_visited) {
  Rig rig(3);
  load_long(rig, 2);
  rig.net.completes = [](const FakeRequest& r) { return r.tests > 5; };
  CHECK(rig.run(2));
  std::map<FakeComm*, std::set<FakeComm*>> seen_since_post;
  std::map<FakeComm*, int64_t> waiting;  // requests that are not done
  int judged = 0;
  for (const FakeEvent& e : rig.net.events) {
    for (auto& [comm, seen] : seen_since_post) seen.insert(e.comm);
    const bool post = e.call == Call::kIsend || e.call == Call::kIrecv;
    if (post) {
      if (seen_since_post.count(e.comm) != 0) {
        for (const auto& [other, requests] : waiting) {
          if (requests > 0) CHECK_EQ(seen_since_post[e.comm].count(other), 1u);
          judged += requests > 0;
        }
      }
      seen_since_post[e.comm].clear();
      ++waiting[e.comm];
    } else if (e.call == Call::kTest && e.moved) {
      --waiting[e.comm];
    }
  }
  CHECK_LT(500, judged);
  CHECK_CONTRACT(rig.net);
}

TEST(one_flow_that_stands_still_holds_up_no_other) {
  Rig rig;
  load_long(rig);
  rig.net.completes = [&](const FakeRequest& r) {
    return r.comm != rig.comm(Direction::kReceive, 0);
  };
  CHECK(!rig.run(1, 30));
  CHECK_EQ(rig.comm(Direction::kReceive, 0)->posted, 16u);
  CHECK_EQ(rig.comm(Direction::kReceive, 1)->consumed, 40u);
  CHECK_EQ(rig.comm(Direction::kSend, 0)->done, 40u);
  CHECK_EQ(rig.comm(Direction::kSend, 1)->done, 40u);
  CHECK_CONTRACT(rig.net);
}

CHECK_MAIN()
