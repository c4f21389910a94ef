// Messages of a session: chunks, windows, FIFO order, faults that stay, waiting for their end.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <stdexcept>
#include <thread>

#include "engine/clock.h"
#include "transfer_pair.h"

using namespace tcpx;

// How far the engine's clock goes ahead of the machine's.
static std::atomic<int64_t> g_ahead_ns{0};
// Where it stands still instead; 0: it goes.
static std::atomic<int64_t> g_still_ns{0};
static std::atomic<int> g_naps{0};

extern "C" {
int __real_nanosleep(const timespec* pause, timespec* left);
int __wrap_nanosleep(const timespec* pause, timespec* left) {
  ++g_naps;
  return __real_nanosleep(pause, left);
}

int __real_clock_gettime(clockid_t clock, timespec* time);
int __wrap_clock_gettime(clockid_t clock, timespec* time) {
  const int code = __real_clock_gettime(clock, time);
  if (g_still_ns != 0) {
    *time = {g_still_ns / 1'000'000'000, g_still_ns % 1'000'000'000};
    return code;
  }
  const int64_t ns = time->tv_nsec + g_ahead_ns;
  time->tv_sec += ns / 1'000'000'000;
  time->tv_nsec = ns % 1'000'000'000;
  return code;
}
}

// Nothing is done before so many seconds from now, of which each test takes 20 ms.
static void complete_after(FakeNet& net, int seconds) {
  const int64_t end_ns = now_ns() + seconds * 1'000'000'000LL;
  net.completes = [end_ns](const FakeRequest&) {
    g_ahead_ns += 20'000'000;
    return now_ns() > end_ns;
  };
}

TEST(chunk_c_travels_on_channel_c_modulo_channels_in_order) {
  Pair pair(3);
  const int memory = pair.memory(755);
  const uint64_t transfer = pair.session.create();
  pair.session.post(transfer, Direction::kSend, memory, 5, 750);
  CHECK_EQ(pair.wait(transfer), WaitResult::kComplete);
  std::map<FakeComm*, std::vector<int64_t>> offsets;
  for (const FakeEvent& event : pair.net.events) {
    if (event.call == Call::kIsend && event.moved) {
      offsets[event.comm].push_back(event.data - pair.memories[0].data() - 5);
    }
  }
  CHECK(offsets[pair.comm(Direction::kSend, 0)] == std::vector<int64_t>({0, 300, 600}));
  CHECK(offsets[pair.comm(Direction::kSend, 1)] == std::vector<int64_t>({100, 400, 700}));
  CHECK(offsets[pair.comm(Direction::kSend, 2)] == std::vector<int64_t>({200, 500}));
  CHECK_EQ(pair.comm(Direction::kSend, 1)->requests[2].bytes, 50u);
  CHECK_CONTRACT(pair.net);
}

TEST(an_empty_message_is_one_chunk_of_0_bytes_on_channel_0) {
  Pair pair;
  const int memory = pair.memory(0);
  CHECK_EQ(pair.wait(pair.receive(memory, 0)), WaitResult::kComplete);
  CHECK_EQ(pair.comm(Direction::kReceive, 0)->consumed, 1u);
  CHECK_EQ(pair.comm(Direction::kReceive, 1)->posted, 0u);
  CHECK_CONTRACT(pair.net);
}

TEST(a_message_begins_on_the_channel_behind_the_one_before) {
  Pair pair(3);
  const int memory = pair.memory(400);
  const uint64_t transfer = pair.session.create();
  const MessagePlace places[] = {{1, 0, 100}, {1, 100, 0}, {1, 100, 250}, {1, 350, 50}};
  CHECK_EQ(memory, 1);
  pair.session.post(transfer, Direction::kSend, places, 4);
  CHECK_EQ(pair.wait(transfer), WaitResult::kComplete);
  std::map<FakeComm*, std::vector<int64_t>> offsets;
  for (const FakeEvent& event : pair.net.events) {
    if (event.call == Call::kIsend && event.moved) {
      offsets[event.comm].push_back(event.data - pair.memories[0].data());
    }
  }
  CHECK(offsets[pair.comm(Direction::kSend, 0)] == std::vector<int64_t>({0, 200}));
  CHECK(offsets[pair.comm(Direction::kSend, 1)] == std::vector<int64_t>({100, 300}));
  CHECK(offsets[pair.comm(Direction::kSend, 2)] == std::vector<int64_t>({100, 350}));
  CHECK_CONTRACT(pair.net);
}

TEST(windows_fill_and_are_never_exceeded) {
  Pair pair;
  const int memory = pair.memory(100 * kChunkBytes);
  pair.net.completes = never;
  const uint64_t out = pair.send(memory, 100 * kChunkBytes);
  const uint64_t in = pair.receive(memory, 100 * kChunkBytes);
  for (int i = 0; i < 50; ++i) CHECK_EQ(pair.session.poll(out), TransferState::kActive);
  for (int channel : {0, 1}) {
    CHECK_EQ(pair.comm(Direction::kSend, channel)->outstanding(), 12u);
    CHECK_EQ(pair.comm(Direction::kReceive, channel)->outstanding(), 16u);
  }
  // Slots become free one by one, and each is used at once; FakeNet knows a 17th request.
  pair.net.completes = [](const FakeRequest& request) { return request.tests % 3 == 0; };
  CHECK_EQ(pair.wait(out), WaitResult::kComplete);
  CHECK_EQ(pair.wait(in), WaitResult::kComplete);
  CHECK_EQ(pair.comm(Direction::kSend, 0)->most_outstanding, 12u);
  CHECK_EQ(pair.comm(Direction::kReceive, 1)->most_outstanding, 16u);
  CHECK_EQ(pair.net.count(Call::kConsumed), 100u);
  CHECK_CONTRACT(pair.net);
}

TEST(many_small_messages_share_a_window_and_its_order) {
  Pair pair;
  const int memory = pair.memory(10);
  pair.net.completes = never;
  std::vector<uint64_t> transfers;
  for (int i = 0; i < 40; ++i) transfers.push_back(pair.receive(memory, 10));
  CHECK_EQ(pair.comm(Direction::kReceive, 0)->outstanding(), 16u);
  pair.net.completes = [](const FakeRequest& request) { return request.serial < 7; };
  for (int i = 0; i < 50; ++i) pair.session.poll(transfers[0]);
  for (int i = 0; i < 40; ++i) {  // 7 on each of 2 channels
    CHECK_EQ(pair.session.poll(transfers[i]),
             i < 14 ? TransferState::kComplete : TransferState::kActive);
  }
  CHECK_CONTRACT(pair.net);
}

TEST(a_transfer_that_ends_leaves_the_requests_of_others_alone) {
  Pair pair(1);
  const int memory = pair.memory(4 * kChunkBytes);
  pair.net.completes = [](const FakeRequest& request) { return request.serial < 2; };
  const uint64_t first = pair.receive(memory, 2 * kChunkBytes);
  const uint64_t second = pair.receive(memory, 4 * kChunkBytes);
  CHECK_EQ(pair.wait(first), WaitResult::kComplete);
  pair.session.release(first);
  for (int i = 0; i < 10; ++i) {
    CHECK_EQ(pair.session.poll(second), TransferState::kActive);
  }
  CHECK_EQ(pair.comm(Direction::kReceive, 0)->outstanding(), 4u);
  pair.net.completes = [](const FakeRequest&) { return true; };
  CHECK_EQ(pair.wait(second), WaitResult::kComplete);
  CHECK_EQ(pair.comm(Direction::kReceive, 0)->posted, 6u);
  CHECK_CONTRACT(pair.net);
}

TEST(a_transfer_of_sends_and_receives_is_complete_when_both_are) {
  Pair pair;
  const int memory = pair.memory(300);
  pair.net.completes = [](const FakeRequest& request) { return request.comm->sends; };
  const uint64_t both = pair.send(memory, 300);
  pair.receive(memory, 300, both);
  CHECK_EQ(pair.wait(both, 20'000'000), WaitResult::kStalled);
  pair.net.completes = [](const FakeRequest&) { return true; };
  CHECK_EQ(pair.wait(both), WaitResult::kComplete);
  pair.send(memory, 300, both);  // and it may go on
  CHECK_EQ(pair.wait(both), WaitResult::kComplete);
  CHECK_CONTRACT(pair.net);
}

TEST(between_two_posts_of_a_comm_every_other_comm_is_asked) {
  Pair pair;
  const int memory = pair.memory(24 * kChunkBytes);
  pair.net.completes = never;
  pair.send(memory, 24 * kChunkBytes);
  const uint64_t in = pair.receive(memory, 24 * kChunkBytes);
  for (int i = 0; i < 20; ++i) pair.session.poll(in);
  std::map<FakeComm*, size_t> last;  // index of the last post of a comm
  for (size_t i = 0; i < pair.net.events.size(); ++i) {
    const FakeEvent& event = pair.net.events[i];
    if (event.call == Call::kTest || event.comm != pair.comm(Direction::kSend, 0)) continue;
    if (last.count(event.comm) > 0) {
      bool others = false;
      for (size_t k = last[event.comm]; k < i; ++k) {
        others |= pair.net.events[k].comm == pair.comm(Direction::kSend, 1);
      }
      CHECK(others);
    }
    last[event.comm] = i;
  }
  CHECK_CONTRACT(pair.net);
}

TEST(an_error_of_the_plugin_stays_and_nothing_is_called_after_it) {
  for (const Call call : {Call::kIsend, Call::kIrecv, Call::kTest, Call::kConsumed}) {
    Pair pair;
    const int memory = pair.memory(8 * kChunkBytes);
    const uint64_t whole = pair.receive(memory, 100);
    CHECK_EQ(pair.wait(whole), WaitResult::kComplete);
    pair.net.code = [&](Call asked, const FakeComm*) { return asked == call ? 3 : 0; };
    const uint64_t broken = pair.session.create();
    pair.session.post(broken, Direction::kReceive, memory, 0, 8 * kChunkBytes);
    pair.session.post(broken, Direction::kSend, memory, 0, 8 * kChunkBytes);
    CHECK_EQ(pair.wait(broken), WaitResult::kFailed);
    const TransferFault fault = pair.session.fault();
    CHECK_EQ(fault.kind, FaultKind::kPlugin);
    CHECK_EQ(fault.code, 3);
    CHECK_EQ(fault.transfer, broken);
    const uint64_t calls = pair.net.calls;
    pair.net.code = [](Call, const FakeComm*) { return 0; };
    CHECK_EQ(pair.wait(broken), WaitResult::kFailed);
    CHECK_EQ(pair.session.poll(broken), TransferState::kFailed);
    CHECK_EQ(pair.session.poll(whole), TransferState::kComplete);  // its bytes are right
    CHECK_EQ(pair.net.calls, calls);
  }
}

TEST(a_reported_size_that_is_not_the_posted_one_is_a_fault_that_names_the_chunk) {
  Pair pair;
  const int memory = pair.memory(250);
  pair.net.reported_size = [&](const FakeRequest& request) {
    if (request.comm->sends) return -1;
    return request.bytes == 50 ? 24 : static_cast<int>(request.bytes);
  };
  const uint64_t transfer = pair.receive(memory, 250);
  CHECK_EQ(pair.wait(transfer), WaitResult::kFailed);
  const TransferFault fault = pair.session.fault();
  CHECK_EQ(fault.kind, FaultKind::kSize);
  CHECK_EQ(fault.code, 24);
  CHECK_EQ(fault.chunk, 2u);
  CHECK_EQ(fault.bytes, 50u);
  CHECK_EQ(fault.transfer, transfer);
}

TEST(a_wait_ends_after_its_patience_without_progress_and_may_be_repeated) {
  Pair pair;
  const int memory = pair.memory(100);
  pair.net.completes = never;
  const uint64_t transfer = pair.receive(memory, 100);
  const int64_t start = now_ns();
  CHECK_EQ(pair.wait(transfer, 30'000'000), WaitResult::kStalled);
  CHECK_LE(int64_t{30'000'000}, now_ns() - start);
  pair.net.completes = [](const FakeRequest&) { return true; };
  CHECK_EQ(pair.wait(transfer, 0), WaitResult::kComplete);
  CHECK_EQ(pair.session.fault().kind, FaultKind::kNone);
}

TEST(traffic_of_the_other_direction_keeps_no_stalled_transfer_alive) {
  Pair pair(1);
  const int memory = pair.memory(100);
  pair.net.completes = [](const FakeRequest& request) { return request.comm->sends; };
  const uint64_t stalled = pair.receive(memory, 100);
  std::atomic<bool> over{false};
  const uint64_t busy = pair.session.create();
  std::thread others([&] {
    while (!over) pair.session.post(busy, Direction::kSend, memory, 0, 100);
  });
  CHECK_EQ(pair.wait(stalled, 20'000'000), WaitResult::kStalled);
  over = true;
  others.join();
  CHECK_EQ(pair.wait(busy), WaitResult::kComplete);
  CHECK_CONTRACT(pair.net);
}

TEST(progress_is_what_the_deadline_counts_from) {
  Pair pair(1);
  const int memory = pair.memory(12 * kChunkBytes);
  int64_t last = now_ns();
  pair.net.completes = [&](const FakeRequest&) {  // one every 30 ms, where 300 ms are too long
    if (now_ns() - last < 30'000'000) return false;
    last = now_ns();
    return true;
  };
  CHECK_EQ(pair.wait(pair.receive(memory, 12 * kChunkBytes), 300'000'000), WaitResult::kComplete);
}

TEST(a_wait_has_its_patience_however_long_ago_something_moved) {
  Pair pair(1);
  const int memory = pair.memory(100);
  complete_after(pair.net, 12);
  const uint64_t transfer = pair.receive(memory, 100);
  g_ahead_ns += 10'000'000'000;
  CHECK_EQ(pair.wait(transfer, 5'000'000'000), WaitResult::kComplete);
}

TEST(a_message_has_its_patience_from_when_it_was_posted_though_the_plugin_was_busy) {
  Pair pair(1);
  const int memory = pair.memory(100);
  complete_after(pair.net, 7);
  const int64_t start = now_ns();
  const uint64_t transfer = pair.receive(memory, 100);
  bool posted = false;
  const auto hook = [&] {
    if (posted || now_ns() - start < 4'000'000'000) return;
    pair.net.busy = [&](const FakeComm&) { return now_ns() - start < 7'000'000'000; };
    pair.receive(memory, 100, transfer);
    posted = true;
  };
  CHECK_EQ(pair.session.wait(transfer, 5'000'000'000, hook), WaitResult::kComplete);
  CHECK(posted);
}

TEST(what_waits_may_be_ended_by_its_hook) {
  Pair pair;
  const int memory = pair.memory(100);
  pair.net.completes = never;
  const uint64_t transfer = pair.receive(memory, 100);
  int calls = 0;
  const auto hook = [&] {
    if (++calls == 2) throw std::runtime_error("enough");
  };
  CHECK_THROWS(pair.session.wait(transfer, kPatient, hook), std::runtime_error, "enough");
  CHECK_EQ(pair.session.poll(transfer), TransferState::kActive);
}

TEST(the_picture_says_what_the_oldest_request_is) {
  Pair pair(1);
  const int memory = pair.memory(2000);
  pair.net.completes = [](const FakeRequest& request) { return request.serial < 1; };
  const uint64_t transfer = pair.receive(memory, 2000);
  for (int i = 0; i < 40; ++i) pair.session.poll(transfer);
  const auto rows = pair.session.picture();
  CHECK_EQ(rows.size(), 2u);
  const auto& in = rows[rows[0].kind == FlowKind::kReceive ? 0 : 1];
  CHECK_EQ(in.posted, 17u);
  CHECK_EQ(in.completed, 1u);
  CHECK_EQ(in.oldest_transfer, transfer);
  CHECK_EQ(in.oldest_chunk, 1u);
  CHECK_EQ(in.queued, 1u);
  CHECK_EQ(in.bytes, uint64_t{kChunkBytes});
  CHECK_LE(int64_t{0}, in.oldest_age_ns);
}

TEST(the_oldest_request_is_as_old_as_it_is_whatever_was_posted_since) {
  Pair pair(1);
  const int memory = pair.memory(2 * kChunkBytes);
  pair.net.completes = never;
  const uint64_t transfer = pair.receive(memory, kChunkBytes);
  const int64_t posted = now_ns();
  for (int i = 0; i < 1000; ++i) pair.session.poll(transfer);
  pair.receive(memory, kChunkBytes, transfer);
  const int64_t asked = now_ns();
  for (const TransferPicture& row : pair.session.picture()) {
    if (row.kind != FlowKind::kReceive) continue;
    CHECK_EQ(row.posted, 2u);
    CHECK_LE(asked - posted, row.oldest_age_ns);
  }
}

TEST(with_nothing_outstanding_the_picture_says_which_chunk_is_next) {
  Pair pair(1);
  const int memory = pair.memory(6 * kChunkBytes - 1);
  pair.net.busy = [](const FakeComm& comm) { return comm.posted == 5; };
  const uint64_t transfer = pair.send(memory, 6 * kChunkBytes - 1);
  for (int i = 0; i < 20; ++i) pair.session.poll(transfer);
  for (const TransferPicture& row : pair.session.picture()) {
    if (row.kind != FlowKind::kSend) continue;
    CHECK_EQ(row.oldest_age_ns, -1);
    CHECK_EQ(row.oldest_transfer, transfer);
    CHECK_EQ(row.oldest_chunk, 5u);
    CHECK_EQ(row.oldest_bytes, kChunkBytes - 1);
  }
}

// By the engine's clock no time passes, however slow the machine is.
TEST(a_wait_that_has_just_begun_does_not_sleep) {
  Pair pair(1);
  const int memory = pair.memory(10);
  pair.net.completes = [](const FakeRequest& request) { return request.tests == 1000; };
  const uint64_t transfer = pair.receive(memory, 10);
  g_still_ns = now_ns();
  CHECK_EQ(pair.wait(transfer), WaitResult::kComplete);
  CHECK_EQ(g_naps.load(), 0);
  g_still_ns = 0;
}

TEST(a_forked_child_makes_no_progress_for_the_sessions_of_its_parent) {
  Pair pair(1);
  const int memory = pair.memory(10);
  pair.net.completes = never;
  pair.receive(memory, 10);
  const uint64_t before = pair.net.calls;
  const pid_t child = fork();
  if (child == 0) {
    Pair own(1);
    const int mine = own.memory(10);
    const bool complete = own.wait(own.receive(mine, 10)) == WaitResult::kComplete;
    _exit(complete && pair.net.calls == before ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

CHECK_MAIN()
