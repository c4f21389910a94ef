// Messages of a session: chunks, windows, FIFO order, faults that stay, memory that is in use.
#include <atomic>
#include <map>
#include <stdexcept>
#include <thread>

#include "engine/clock.h"
#include "engine/transfer.h"
#include "fake_net.h"

using namespace tcpx;

namespace {

constexpr int64_t kPatient = 5'000'000'000;
constexpr uint64_t kChunkBytes = 100;

TransferLimits small_chunks(int channels) { return {channels, kChunkBytes, 12, 16}; }

// A session with both directions up over a plugin that the test scripts.
struct Pair {
  explicit Pair(int channels = 2, bool established = true)
      : session(net, 0, small_chunks(channels)) {
    for (int channel = 0; channel < channels; ++channel) {
      session.add_send(channel, session.listen(channel).data());
    }
    if (established) session.establish(5.0, std::nullopt);
  }
  FakeComm* comm(Direction direction, int channel) {
    return static_cast<FakeComm*>(
        session.connections().find(direction, kUnranked, 0, channel)->comm);
  }
  int memory(size_t bytes) {
    memories.emplace_back(bytes + 1);
    return session.register_memory(memories.back().data(), bytes, kNetPtrHost);
  }
  uint64_t send(int memory, uint64_t bytes, uint64_t transfer = 0) {
    return posted(Direction::kSend, memory, bytes, transfer);
  }
  uint64_t receive(int memory, uint64_t bytes, uint64_t transfer = 0) {
    return posted(Direction::kReceive, memory, bytes, transfer);
  }
  uint64_t posted(Direction direction, int memory, uint64_t bytes, uint64_t transfer) {
    if (transfer == 0) transfer = session.create();
    session.post(transfer, direction, memory, 0, bytes);
    return transfer;
  }
  WaitResult wait(uint64_t transfer, int64_t patience_ns = kPatient) {
    return session.wait(transfer, patience_ns);
  }

  FakeNet net;
  PeerSession session;
  std::deque<std::vector<uint8_t>> memories;
};

bool never(const FakeRequest&) { return false; }

}  // namespace

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
  for (int i = 0; i < 40; ++i) {
    CHECK_EQ(pair.session.poll(transfers[i]),
             i < 7 ? TransferState::kComplete : TransferState::kActive);
  }
  CHECK_CONTRACT(pair.net);
}

TEST(receives_are_consumed_once_after_done_in_order) {
  Pair pair;
  const int memory = pair.memory(64 * kChunkBytes);
  pair.net.completes = [](const FakeRequest& r) { return r.tests % (1 + r.serial % 4) == 0; };
  CHECK_EQ(pair.wait(pair.receive(memory, 64 * kChunkBytes)), WaitResult::kComplete);
  CHECK_EQ(pair.net.count(Call::kConsumed), 64u);
  CHECK_EQ(pair.session.connections().find(Direction::kReceive, kUnranked, 0, 0)->receives_done,
           32u);
  CHECK_CONTRACT(pair.net);  // FakeNet notes early, late, double and foreign ones
}

TEST(a_plugin_without_consumed_is_not_asked_to_consume) {
  Pair pair;
  pair.net.consumed_offered = false;
  pair.net.events.clear();
  const int memory = pair.memory(5 * kChunkBytes);
  CHECK_EQ(pair.wait(pair.receive(memory, 5 * kChunkBytes)), WaitResult::kComplete);
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

TEST(busy_is_no_error_and_posts_the_same_chunk_again) {
  Pair pair;
  const int memory = pair.memory(20 * kChunkBytes);
  int asked = 0;
  pair.net.busy = [&](const FakeComm&) { return ++asked % 5 != 0; };
  CHECK_EQ(pair.wait(pair.send(memory, 20 * kChunkBytes)), WaitResult::kComplete);
  CHECK_EQ(pair.net.count(Call::kIsend), 20u);
  CHECK_LT(uint64_t{20}, pair.net.count(Call::kIsend, false));
  std::map<uint8_t*, int> times;
  for (const FakeEvent& e : pair.net.events) times[e.data] += e.call == Call::kIsend && e.moved;
  CHECK_EQ(times.size(), 20u);
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
    CHECK_EQ(fault.kind, TransferFault::Kind::kPlugin);
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
  CHECK_EQ(fault.kind, TransferFault::Kind::kSize);
  CHECK_EQ(fault.code, 24);
  CHECK_EQ(fault.chunk, 2u);
  CHECK_EQ(fault.bytes, 50u);
  CHECK_EQ(fault.transfer, transfer);
}

TEST(a_size_of_0_is_a_size_only_where_the_plugin_reports_sizes) {
  for (const bool reports : {false, true}) {
    Pair pair(1);
    const int memory = pair.memory(100);
    pair.net.reported_size = [&](const FakeRequest&) { return reports ? 100 : -1; };
    CHECK_EQ(pair.wait(pair.receive(memory, 100)), WaitResult::kComplete);
    pair.net.reported_size = [&](const FakeRequest&) { return reports ? 0 : -1; };
    CHECK_EQ(pair.wait(pair.receive(memory, 100)),
             reports ? WaitResult::kFailed : WaitResult::kComplete);
  }
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
  CHECK_EQ(pair.session.fault().kind, TransferFault::Kind::kNone);
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
  const int memory = pair.memory(6 * kChunkBytes);
  int64_t last = now_ns();
  pair.net.completes = [&](const FakeRequest&) {  // one every 30 ms, where 100 ms are too long
    if (now_ns() - last < 30'000'000) return false;
    last = now_ns();
    return true;
  };
  CHECK_EQ(pair.wait(pair.receive(memory, 6 * kChunkBytes), 100'000'000), WaitResult::kComplete);
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

TEST(a_message_outside_of_its_memory_is_refused_without_a_trace) {
  Pair pair;
  const int memory = pair.memory(1000);
  const uint64_t transfer = pair.session.create();
  const auto post = [&](uint64_t offset, uint64_t bytes) {
    pair.session.post(transfer, Direction::kSend, memory, offset, bytes);
  };
  CHECK_THROWS(post(1, 1000), std::out_of_range, "beyond");
  CHECK_THROWS(post(1001, 0), std::out_of_range, "beyond");
  CHECK_THROWS(post(UINT64_MAX, 2), std::out_of_range, "beyond");
  CHECK_THROWS(post(500, UINT64_MAX), std::out_of_range, "beyond");
  CHECK_EQ(pair.session.poll(transfer), TransferState::kComplete);
  post(1000, 0);
  post(0, 1000);
  CHECK_EQ(pair.wait(transfer), WaitResult::kComplete);
  CHECK_CONTRACT(pair.net);
}

TEST(unknown_transfers_and_memories_and_missing_comms_are_refused) {
  Pair pair;
  const int memory = pair.memory(100);
  const uint64_t transfer = pair.session.create();
  CHECK_THROWS(pair.send(memory + 1, 1), std::invalid_argument, "no such memory");
  CHECK_THROWS(pair.send(memory, 1, transfer + 7), std::invalid_argument, "no such transfer");
  pair.session.release(transfer);
  CHECK_THROWS(pair.session.poll(transfer), std::invalid_argument, "no such transfer");
  Pair deaf(2, false);
  const int other = deaf.memory(100);
  CHECK_THROWS(deaf.send(other, 1), std::invalid_argument, "no connections of that direction");
}

TEST(memory_may_be_registered_before_the_comms_are_there) {
  Pair pair(2, false);
  const int early = pair.memory(500);
  CHECK_EQ(pair.net.registrations.size(), 0u);
  pair.session.establish(5.0, std::nullopt);
  CHECK_EQ(pair.net.registrations.size(), 4u);
  const int late = pair.memory(500);
  CHECK_EQ(pair.net.registrations.size(), 8u);
  for (const int memory : {early, late}) {
    CHECK_EQ(pair.wait(pair.send(memory, 500)), WaitResult::kComplete);
    CHECK_EQ(pair.wait(pair.receive(memory, 500)), WaitResult::kComplete);
  }
  CHECK_CONTRACT(pair.net);  // FakeNet knows a registration of another comm
}

TEST(memory_in_use_is_not_deregistered_and_outlives_its_released_transfer) {
  Pair pair;
  const int memory = pair.memory(300);
  pair.net.completes = never;
  const uint64_t transfer = pair.receive(memory, 300);
  CHECK_THROWS(pair.session.deregister_memory(memory), std::invalid_argument,
               "in use by 1 unfinished messages");
  pair.session.release(transfer);
  CHECK_THROWS(pair.session.deregister_memory(memory), std::invalid_argument, "in use");
  CHECK_EQ(pair.net.deregistered, 0);
  pair.net.completes = [](const FakeRequest&) { return true; };
  const uint64_t next = pair.receive(pair.memory(1), 1);
  CHECK_EQ(pair.wait(next), WaitResult::kComplete);
  while (pair.net.count(Call::kConsumed) < 4) pair.session.poll(next);
  pair.session.deregister_memory(memory);
  CHECK_EQ(pair.net.deregistered, 4);
  CHECK_THROWS(pair.session.deregister_memory(memory), std::invalid_argument, "no such memory");
  CHECK_CONTRACT(pair.net);
}

TEST(a_registration_that_one_comm_refuses_leaves_none) {
  struct Picky : FakeNet {
    int left = 1000;
    int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
      return left-- > 0 ? FakeNet::reg_mr(comm, data, bytes, type, mhandle) : kNetSystemError;
    }
  } net;
  uint8_t bytes[10];
  {
    PeerSession late(net, 0, small_chunks(2));
    for (int channel : {0, 1}) late.listen(channel);
    late.register_memory(bytes, 5, kNetPtrHost);
    late.register_memory(bytes, 10, kNetPtrHost);
    net.left = 1;
    for (int i = 0; i < 2; ++i) {  // the refusal stays
      CHECK_THROWS(late.establish(1.0, std::nullopt), PluginError, "regMr returned 2");
    }
    CHECK_EQ(net.deregistered, 1);
  }
  CHECK_EQ(net.deregistered, 1);
  net.left = 1000;
  PeerSession session(net, 0, small_chunks(2));
  for (int channel : {0, 1}) session.listen(channel);
  const int early = session.register_memory(bytes, 10, kNetPtrHost);
  session.establish(1.0, Direction::kReceive);
  net.deregistered = 0;
  net.left = 1;
  CHECK_THROWS(session.register_memory(bytes, 10, kNetPtrHost), PluginError,
               "regMr returned 2 (system error): from the peer, channel 1");
  CHECK_EQ(net.deregistered, 1);
  session.deregister_memory(early);
  CHECK_EQ(net.deregistered, 3);
}

TEST(closing_deregisters_all_memory_and_then_closes_all_comms_once) {
  Pair pair;
  pair.memory(100);
  pair.memory(100);
  pair.net.completes = never;
  const uint64_t lost = pair.receive(1, 100);
  pair.session.close();
  CHECK_EQ(pair.net.deregistered, 8);
  CHECK_EQ(pair.net.closed.size(), 4u);
  const uint64_t calls = pair.net.calls;
  CHECK_EQ(pair.wait(lost), WaitResult::kClosed);
  CHECK_EQ(pair.net.calls, calls);
  pair.session.close();
  CHECK_EQ(pair.net.closed.size(), 4u);
}

TEST(limits_outside_of_the_contract_are_refused) {
  FakeNet net;
  for (const TransferLimits& limits :
       {TransferLimits{2, 100, 0, 16}, TransferLimits{2, 100, 12, 17}}) {
    CHECK_THROWS(PeerSession(net, 0, limits), std::invalid_argument, "a window of");
  }
  for (const TransferLimits& limits : {TransferLimits{0, 100, 12, 16}, TransferLimits{2, 0, 12, 16},
                                       TransferLimits{2, kMaxChunkBytes + 1, 12, 16}}) {
    CHECK_THROWS(PeerSession(net, 0, limits), std::invalid_argument, "bad chunk");
  }
}

TEST(waiting_for_connections_of_one_session_brings_up_those_of_the_others) {
  struct Circle : FakeNet {  // a connect comes up once somebody has polled for its accept
    int accepts = 0;
    int connect(int device, void* handle, void** comm, NetDeviceHandle** block) override {
      return accepts == 0 ? 0 : FakeNet::connect(device, handle, comm, block);
    }
    int accept(void* listener, void** comm, NetDeviceHandle** block) override {
      return ++accepts < 3 ? 0 : FakeNet::accept(listener, comm, block);
    }
  } net;
  PeerSession to_next(net, 0, small_chunks(1));
  PeerSession from_last(net, 0, small_chunks(1));
  to_next.add_send(0, from_last.listen(0).data());
  to_next.establish(5.0, Direction::kSend);
  CHECK_LT(0, net.accepts);
  from_last.establish(5.0, Direction::kReceive);
}

TEST(waiting_for_a_transfer_of_one_session_moves_those_of_the_others) {
  Pair first(1), second(1);
  const int out = first.memory(100);
  const int in = second.memory(30 * kChunkBytes);
  // As where sends wait for receives: nothing leaves before all has come in.
  first.net.completes = [&](const FakeRequest&) { return second.net.count(Call::kConsumed) == 30; };
  const uint64_t incoming = second.receive(in, 30 * kChunkBytes);
  CHECK_EQ(first.wait(first.send(out, 100)), WaitResult::kComplete);
  CHECK_EQ(second.session.poll(incoming), TransferState::kComplete);
  CHECK_CONTRACT(first.net);
  CHECK_CONTRACT(second.net);
}

TEST(traffic_of_another_session_keeps_no_wait_for_connections_alive) {
  struct Deaf : FakeNet {
    int accept(void*, void**, NetDeviceHandle**) override { return 0; }
  } deaf;
  PeerSession lonely(deaf, 0, small_chunks(1));
  lonely.listen(0);
  Pair busy(1);
  const int memory = busy.memory(1);
  busy.net.completes = never;
  const uint64_t endless = busy.session.create();
  for (int i = 0; i < 200'000; ++i) busy.send(memory, 1, endless);
  busy.net.completes = [&](const FakeRequest&) {
    busy.net.events.clear();
    return true;
  };
  CHECK_THROWS(lonely.establish(0.02, std::nullopt), ConnectTimeout, "0.020 s");
  CHECK_EQ(busy.session.poll(endless), TransferState::kActive);  // it had not come to an end
}

TEST(a_refused_connection_is_told_to_its_own_session_and_stays) {
  struct Refusing : FakeNet {
    int connects = 0;
    int connect(int, void*, void**, NetDeviceHandle**) override { return ++connects, 2; }
  } refusing;
  PeerSession refused(refusing, 0, small_chunks(1));
  uint8_t handle[kNetHandleBytes] = {};
  refused.add_send(0, handle);
  Pair well(1);  // polls the other's connection too
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS(refused.establish(5.0, Direction::kSend), PluginError,
                 "plugin call connect returned 2 (system error): to the peer, channel 0");
  }
  CHECK_EQ(refusing.connects, 1);
}

TEST(a_peer_that_does_not_come_is_named_and_may_come_later) {
  struct Slow : FakeNet {
    bool comes = false;
    int accept(void* listener, void** comm, NetDeviceHandle** block) override {
      return comes ? FakeNet::accept(listener, comm, block) : 0;
    }
  } net;
  PeerSession session(net, 0, small_chunks(2));
  for (int channel : {0, 1}) session.listen(channel);
  CHECK_THROWS(session.establish(0.05, Direction::kReceive), ConnectTimeout,
               "2 of 2 connections did not come up within 0.050 s: from the peer, channel 0; from "
               "the peer, channel 1");
  int calls = 0;
  const auto hook = [&] {
    if (++calls == 2) throw std::runtime_error("enough");
  };
  CHECK_THROWS(session.establish(20.0, Direction::kReceive, hook), std::runtime_error, "enough");
  net.comes = true;
  session.establish(1.0, Direction::kReceive);
  session.establish(1.0, Direction::kReceive);  // nothing is left to wait for
}

TEST(the_picture_says_what_the_oldest_request_is) {
  Pair pair(1);
  const int memory = pair.memory(2000);
  pair.net.completes = [](const FakeRequest& request) { return request.serial < 1; };
  const uint64_t transfer = pair.receive(memory, 2000);
  for (int i = 0; i < 40; ++i) pair.session.poll(transfer);
  const auto rows = pair.session.picture();
  CHECK_EQ(rows.size(), 2u);
  const auto& in = rows[rows[0].direction == Direction::kReceive ? 0 : 1];
  CHECK(in.has_oldest);
  CHECK_EQ(in.posted, 17u);
  CHECK_EQ(in.finished, 1u);
  CHECK_EQ(in.oldest_transfer, transfer);
  CHECK_EQ(in.oldest_chunk, 1u);
  CHECK_EQ(in.queued, 1u);
  CHECK_LE(int64_t{0}, in.oldest_age_ns);
}

CHECK_MAIN()
