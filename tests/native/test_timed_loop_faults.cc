// How a batch ends that cannot go on: errors, stalls, signals, requests, wrong sizes.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "engine/signals.h"
#include "rig.h"

using namespace tcpx;

namespace {

void load_long(Rig& rig, uint64_t iterations = 1) {
  rig.load(Steps().receive(0).send(0), {1280}, 16, iterations);
}

// A batch that would go on for many seconds, in which every call moves something.
constexpr uint64_t kForever = 400;
void load_forever(Rig& rig) {
  rig.load(Steps().receive(0).send(0), {200'000}, 4, kForever);
  rig.bases[kSendBuffer].stride = rig.bases[kReceiveBuffer].stride = 0;
  const Steps steps = Steps().receive(0).send(0);
  const BlockTable blocks[kBuffers] = {blocks_of({200'000}), blocks_of({200'000}), {}};
  rig.driver.load(compile(steps.data(), steps.size(), blocks, 4, 2), rig.bases);
  rig.net.watch = [&rig](const FakeEvent&) { rig.net.events.clear(); };
}

}  // namespace

TEST(an_error_of_any_call_is_named_and_ends_the_batch) {
  const struct {
    Call call;
    bool sends;
    const char* name;
  } cases[] = {{Call::kIsend, true, "isend"},
               {Call::kIrecv, false, "irecv"},
               {Call::kTest, true, "test"},
               {Call::kTest, false, "test"},
               {Call::kConsumed, false, "irecvConsumed"}};
  for (const auto& wanted : cases) {
    for (const int code : {1, 2, 3, 6, 7, 8, 99, -1}) {
      Rig rig;
      load_long(rig);
      const auto direction = wanted.sends ? Direction::kSend : Direction::kReceive;
      const FakeComm* victim = rig.comm(direction, 1);
      int calls = 0;
      rig.net.code = [&](Call call, const FakeComm* comm) {
        return call == wanted.call && comm == victim && ++calls == 8 ? code : 0;
      };
      CHECK(!rig.run(1));
      const Fault& fault = rig.driver.fault();
      CHECK_EQ(fault.kind, FaultKind::kPlugin);
      CHECK_EQ(std::string(fault.call), std::string(wanted.name));
      CHECK_EQ(fault.code, code);
      // The 8th chunk on channel 1 of 2.
      CHECK_EQ(fault.chunk, 15u);
      CHECK_EQ(fault.step, wanted.sends ? 1u : 0u);
      const FlowReport& flow = rig.driver.picture()[fault.flow];
      CHECK_EQ(flow.kind, wanted.sends ? FlowKind::kSend : FlowKind::kReceive);
      CHECK_EQ(flow.channel, 1);
      CHECK_EQ(flow.peer, kPeer);
      CHECK_CONTRACT(rig.net);
    }
  }
}

TEST(the_first_fault_of_a_sweep_is_the_one_that_counts) {
  struct Breaking : Unpacker {
    UnpackResult submit(const UnpackSource&, uint8_t*, uint64_t) override { return {}; }
    void copy(uint8_t*, const uint8_t*, uint64_t) override {}
    void reduce(const uint8_t*, const uint8_t*, uint8_t*, uint64_t) override {}
    void prepare(const Arithmetic&) override {}
    UnpackResult submit_reduce(const UnpackSource&, const uint8_t*, uint8_t*, uint64_t) override {
      return {};
    }
    void scale(uint8_t*, const uint8_t*, uint64_t) override {}
    uint64_t finished() override { return 0; }
    UnpackFailure failure() const override { return {"cuLaunchKernel", broken ? 719 : 0}; }
    bool broken = false;
  } gpu;
  Rig rig;
  load_long(rig);
  TimedLoop driver(rig.net, rig.connections, {}, nullptr, &gpu);
  const Steps steps = Steps().receive(0).send(0);
  const BlockTable blocks[kBuffers] = {blocks_of({1280}), blocks_of({1280}), {}};
  driver.load(compile(steps.data(), steps.size(), blocks, 16, 2), rig.bases);
  driver.reserve(1);
  rig.net.code = [&](Call call, const FakeComm*) {
    gpu.broken |= call == Call::kTest;
    return call == Call::kTest ? 6 : 0;
  };
  BatchPlan plan;
  plan.iterations = 1;
  plan.stall_ns = 2'000'000'000;
  CHECK(!driver.run(plan));
  CHECK_EQ(driver.fault().kind, FaultKind::kPlugin);
  CHECK_EQ(driver.fault().code, 6);
}

TEST(after_an_error_nothing_is_called_any_more) {
  for (const auto direction : {Direction::kReceive, Direction::kSend}) {
    for (const int channel : {0, 1}) {
      Rig rig;
      load_long(rig);
      uint64_t calls_at_error = 0;
      int tests = 0;
      const FakeComm* victim = rig.comm(direction, channel);
      rig.net.code = [&](Call call, const FakeComm* comm) {
        if (call != Call::kTest || comm != victim || ++tests < 5) return 0;
        if (calls_at_error == 0) calls_at_error = rig.net.calls;
        return 2;
      };
      CHECK(!rig.run(1));
      CHECK_EQ(rig.net.calls, calls_at_error);
      rig.net.code = [](Call, const FakeComm*) { return 0; };
      CHECK(!rig.run(1));
      CHECK(!rig.run(1));
      CHECK_EQ(rig.net.calls, calls_at_error);
      CHECK_EQ(rig.driver.fault().code, 2);
    }
  }
}

TEST(a_size_that_differs_from_what_was_sent_is_a_fault) {
  for (const int reported : {1, 15, 17, 1 << 20}) {
    Rig rig;
    load_long(rig);
    rig.net.reported_size = [&](const FakeRequest& r) {
      return r.comm->sends ? -1 : r.serial == 5 ? reported : static_cast<int>(r.bytes);
    };
    CHECK(!rig.run(1));
    CHECK_EQ(rig.driver.fault().kind, FaultKind::kSize);
    CHECK_EQ(rig.driver.fault().code, reported);
    CHECK_EQ(rig.driver.fault().chunk / 2, 5u);
    CHECK_CONTRACT(rig.net);
  }
}

TEST(sizes_that_agree_or_are_not_written_are_none) {
  for (const int how : {-1, 0, 1}) {
    Rig rig;
    load_long(rig);
    rig.net.reported_size = [&](const FakeRequest& r) {
      return how == 1 ? static_cast<int>(r.bytes) : how;
    };
    CHECK(rig.run(1));
    CHECK_CONTRACT(rig.net);
  }
}

TEST(lack_of_progress_is_a_stall_that_names_the_oldest_request) {
  Rig rig;
  load_long(rig, 2);
  // All goes well but for channel 1 of what is received, from its 27th request on; that had been
  // posted for 30 ms when the one before it was done, and the youngest one could be.
  const FakeComm* victim = rig.comm(Direction::kReceive, 1);
  int64_t posted = INT64_MAX;
  rig.net.watch = [&](const FakeEvent& event) {
    if (event.comm == victim && event.call == Call::kIrecv && event.serial == 26) posted = now_ns();
  };
  rig.net.completes = [&](const FakeRequest& r) {
    return r.comm != victim || r.serial < 25 || (r.serial == 25 && now_ns() - posted > 30'000'000);
  };
  const int64_t start = now_ns();
  CHECK(!rig.run(2, 100));
  const int64_t took = now_ns() - start;
  CHECK_LE(100'000'000, took);
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kStall);
  int judged = 0;
  for (const FlowReport& flow : rig.driver.picture()) {
    if (flow.kind == FlowKind::kReceive && flow.channel == 1) {
      ++judged;
      CHECK_EQ(flow.peer, kPeer);
      CHECK_EQ(flow.window, 16);
      CHECK_EQ(flow.posted, 42u);
      CHECK_EQ(flow.completed, 26u);
      CHECK_EQ(flow.bytes, 26u * 16);
      CHECK_EQ(flow.oldest_iteration, 0u);
      CHECK_EQ(flow.oldest_chunk, 53u);
      CHECK_EQ(flow.oldest_step, 0u);
      CHECK_EQ(flow.oldest_bytes, 16u);
      CHECK_LE(int64_t{120'000'000}, flow.oldest_age_ns);
      CHECK_LE(flow.oldest_age_ns, took);
      CHECK(!flow.finished);
    } else if (flow.kind == FlowKind::kSend) {
      ++judged;
      // Iteration 0 is not complete: nothing of the next is posted.
      CHECK_EQ(flow.completed, 40u);
      CHECK_EQ(flow.oldest_iteration, 1u);
      CHECK_EQ(flow.oldest_age_ns, -1);
      CHECK(!flow.finished);
    } else {
      CHECK(flow.finished);
    }
  }
  CHECK_EQ(judged, 3);
  CHECK_CONTRACT(rig.net);
}

TEST(slow_progress_is_no_stall) {
  Rig rig(1);
  rig.load(Steps().receive(0), {16 * 12}, 16, 1);
  int64_t last = now_ns();
  rig.net.completes = [&](const FakeRequest&) {  // one every 30 ms, where 300 ms are a stall
    if (now_ns() - last < 30'000'000) return false;
    last = now_ns();
    return true;
  };
  CHECK(rig.run(1, 300));
}

TEST(a_signal_ends_a_batch_that_waits) {
  install_signal_handlers();
  Rig rig;
  load_long(rig);
  rig.net.completes = [](const FakeRequest& r) {
    if (r.tests == 500) raise(SIGTERM);
    return false;
  };
  CHECK(!rig.run(1, 20'000));
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kInterrupted);
  CHECK_EQ(rig.driver.fault().code, SIGTERM);
}

TEST(a_signal_ends_a_batch_that_moves) {
  install_signal_handlers();
  Rig rig;
  load_forever(rig);
  int asked = 0;
  rig.net.completes = [&](const FakeRequest&) {
    if (++asked == 1000) raise(SIGINT);
    return true;
  };
  CHECK(!rig.run(kForever, 20'000));
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kInterrupted);
  CHECK_EQ(rig.driver.fault().code, SIGINT);
}

TEST(another_thread_can_end_a_batch) {
  for (const bool moves : {false, true}) {
    Rig rig;
    load_forever(rig);
    std::atomic<int> asked{0};
    rig.net.completes = [&](const FakeRequest&) {
      ++asked;
      return moves;
    };
    std::thread other([&] {
      while (asked < 1000) std::this_thread::yield();
      rig.driver.request_stop();
    });
    CHECK(!rig.run(kForever, 20'000));
    CHECK_EQ(rig.driver.fault().kind, FaultKind::kStopped);
    other.join();
  }
}

TEST(the_total_time_ends_a_batch_that_moves) {
  Rig rig;
  load_forever(rig);
  BatchPlan plan;
  plan.iterations = kForever;
  plan.stall_ns = 20'000'000'000;
  plan.end_by_ns = now_ns() + 50'000'000;
  CHECK(!rig.driver.run(plan));
  CHECK_LT(plan.end_by_ns, now_ns());
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kTimeout);
}

TEST(a_report_is_taken_on_request_and_the_batch_goes_on) {
  install_signal_handlers();
  Rig rig;
  load_long(rig);
  bool asked = false;
  rig.net.completes = [&](const FakeRequest& r) {
    if (!asked && r.tests == 300) {
      asked = true;
      raise(SIGUSR1);
    }
    return r.tests > 600;
  };
  CHECK(rig.run(1, 20'000));
  CHECK(rig.driver.take_picture_ready());
  CHECK(!rig.driver.take_picture_ready());
  uint64_t posted = 0;
  for (const FlowReport& flow : rig.driver.picture()) posted += flow.posted;
  CHECK_EQ(posted, 2u * 16 + 2 * 12);
}

TEST(how_long_nothing_moved_can_be_asked_from_another_thread) {
  Rig rig;
  load_long(rig);
  rig.net.completes = [](const FakeRequest&) { return false; };
  const int64_t start = now_ns();
  int64_t idle = 0;
  std::thread other([&] {
    while (now_ns() - start < 20'000'000'000) {
      usleep(1'000);  // a poll: how long is all that there is to see
      idle = rig.driver.idle_ns();
      if (idle >= 50'000'000 && idle <= now_ns() - start) break;  // of this batch
    }
    rig.driver.request_stop();
  });
  CHECK(!rig.run(1, 20'000));
  other.join();
  CHECK_LE(int64_t{50'000'000}, idle);
  CHECK_LE(idle, now_ns() - start);
}

TEST(a_batch_longer_than_reserved_is_refused) {
  Rig rig;
  load_long(rig, 2);
  CHECK_THROWS(rig.run(3), std::invalid_argument, "reserved");
}

TEST(a_missing_comm_or_registration_is_named_before_the_row) {
  FakeNet net;
  Connections connections(net, 0);
  const auto handle = connections.listen(kPeer, 0, 0);
  connections.add_send(kPeer, 0, 0, handle.data());
  connections.establish(1.0);
  TimedLoop driver(net, connections, {});
  const BlockTable blocks[kBuffers] = {blocks_of({16}), blocks_of({16}), {}};
  const SlotBase bases[kBuffers] = {};
  const Steps steps = Steps().send(0);
  const Steps second_lane = Steps().send(0, -1, kChunk, 1);
  CHECK_THROWS(driver.load(compile(steps.data(), 1, blocks, 16, 1), bases), std::invalid_argument,
               "buffer 0 is not registered");
  CHECK_THROWS(driver.load(compile(second_lane.data(), 1, blocks, 16, 1), bases),
               std::invalid_argument, "no connection to rank 1, lane 1, channel 0");
}

CHECK_MAIN()
