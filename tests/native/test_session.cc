// A session with a peer: what it refuses, memory that is in use, connections, other sessions.
#include <sys/mman.h>

#include <stdexcept>

#include "transfer_pair.h"

using namespace tcpx;

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
    Session late(net, 0, small_chunks(2));
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
  Session session(net, 0, small_chunks(2));
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

TEST(memory_that_is_registered_on_use_is_so_by_direction_and_once) {
  Pair pair;
  uint8_t bytes[300];
  pair.session.add_memory(77, bytes, sizeof(bytes), kNetPtrHost, true);
  CHECK_EQ(pair.net.registrations.size(), 0u);
  const uint64_t transfer = pair.session.create();
  const MessagePlace beyond[] = {{77, 0, 300}, {77, 1, 300}};
  CHECK_THROWS(pair.session.post(transfer, Direction::kSend, beyond, 2), std::out_of_range,
               "beyond");
  CHECK_EQ(pair.net.registrations.size(), 0u);
  CHECK_EQ(pair.session.look(transfer), TransferState::kComplete);
  for (int i = 0; i < 2; ++i) pair.session.post(transfer, Direction::kSend, 77, 0, 300);
  CHECK_EQ(pair.net.registrations.size(), 2u);
  pair.session.post(transfer, Direction::kReceive, 77, 0, 300);
  CHECK_EQ(pair.net.registrations.size(), 4u);
  CHECK_EQ(pair.wait(transfer), WaitResult::kComplete);
  pair.session.deregister_memory(77);
  CHECK_EQ(pair.net.deregistered, 4);
  CHECK_CONTRACT(pair.net);
}

TEST(a_session_that_is_ended_makes_no_further_call_but_closes) {
  Pair pair;
  const int memory = pair.memory(3000);
  pair.net.completes = never;
  const uint64_t lost = pair.receive(memory, 3000);
  pair.session.end();
  pair.net.completes = [](const FakeRequest&) { return true; };
  const uint64_t calls = pair.net.calls;
  CHECK_EQ(pair.session.poll(lost), TransferState::kFailed);
  CHECK_EQ(pair.net.calls, calls);
  CHECK(pair.session.fault().kind == FaultKind::kStopped);
  pair.session.close();
  CHECK_EQ(pair.net.closed.size(), 4u);
  CHECK_THROWS(pair.send(memory, 1, lost), std::invalid_argument, "the session is closed");
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

TEST(what_the_plugin_does_not_take_back_is_told_when_all_is_closed) {
  struct Keeping : FakeNet {
    int dereg_mr(void*, void*) override { return ++deregistered == 2 ? kNetSystemError : 0; }
  } net;
  uint8_t bytes[10];
  Session session(net, 0, small_chunks(3));
  for (int channel : {0, 1, 2}) session.listen(channel);
  session.establish(1.0, Direction::kReceive);
  session.register_memory(bytes, 10, kNetPtrHost);
  CHECK_THROWS(session.close(), PluginError, "deregMr returned 2 (system error): while closing");
  CHECK_EQ(net.deregistered, 3);
  CHECK_EQ(net.closed.size(), 3u);
}

TEST(a_chunk_beyond_the_first_gibibyte_has_its_own_registration) {
  Pair pair(1);
  constexpr size_t kBytes = size_t{5} << 29;
  // Addresses that nobody touches.
  void* const space = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(space != MAP_FAILED);
  const int memory =
      pair.session.register_memory(static_cast<uint8_t*>(space), kBytes, kNetPtrHost);
  const uint64_t both = pair.session.create();
  for (const Direction way : {Direction::kSend, Direction::kReceive}) {
    pair.session.post(both, way, memory, (size_t{1} << 30) - kChunkBytes, 2 * kChunkBytes);
    pair.session.post(both, way, memory, kBytes - 10, 10);
  }
  CHECK_EQ(pair.wait(both), WaitResult::kComplete);
  CHECK_CONTRACT(pair.net);  // FakeNet knows a post outside of its registration
  const auto& registered = pair.net.registrations;
  CHECK_EQ(pair.comm(Direction::kSend, 0)->requests[2].bytes, 10u);
  for (const Direction way : {Direction::kSend, Direction::kReceive}) {
    const FakeComm* const comm = pair.comm(way, 0);
    for (const int request : {1, 2}) {
      const auto* region = static_cast<FakeNet::Registration*>(comm->requests[request].mhandle);
      CHECK_EQ(region->data - static_cast<uint8_t*>(space), ptrdiff_t{request} << 30);
    }
  }
  CHECK_EQ(registered.size(), 6u);
  pair.session.close();
  munmap(space, kBytes);
}

TEST(limits_outside_of_the_contract_are_refused) {
  FakeNet net;
  for (const TransferLimits& limits :
       {TransferLimits{2, 100, 0, 16}, TransferLimits{2, 100, 12, 17}}) {
    CHECK_THROWS(Session(net, 0, limits), std::invalid_argument, "a window of");
  }
  for (const TransferLimits& limits : {TransferLimits{0, 100, 12, 16}, TransferLimits{2, 0, 12, 16},
                                       TransferLimits{2, kMaxChunkBytes + 1, 12, 16}}) {
    CHECK_THROWS(Session(net, 0, limits), std::invalid_argument, "bad chunk");
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
  Session to_next(net, 0, small_chunks(1));
  Session from_last(net, 0, small_chunks(1));
  to_next.add_send(0, from_last.listen(0).data());
  to_next.establish(5.0, Direction::kSend);
  CHECK_LT(0, net.accepts);
  from_last.establish(5.0, Direction::kReceive);
}

TEST(no_session_accepts_before_the_connects_of_all_are_begun) {
  struct Blocking : FakeNet {  // an accept comes back when everyone has connected
    int connects = 0;
    bool blocks = false;
    int connect(int device, void* handle, void** comm, NetDeviceHandle** block) override {
      ++connects;
      return FakeNet::connect(device, handle, comm, block);
    }
    int accept(void* listener, void** comm, NetDeviceHandle** block) override {
      blocks |= connects < 2;
      return FakeNet::accept(listener, comm, block);
    }
  } net;
  Session first(net, 0, small_chunks(1));
  Session second(net, 0, small_chunks(1));
  first.add_send(0, second.listen(0).data());
  second.add_send(0, first.listen(0).data());
  first.establish(5.0, std::nullopt);
  CHECK(!net.blocks);
  second.establish(5.0, std::nullopt);
}

TEST(a_post_accepts_nobody) {
  struct Deaf : FakeNet {
    int accepts = 0;
    int accept(void*, void**, NetDeviceHandle**) override {
      ++accepts;
      return 0;
    }
  } net;
  Session listening(net, 0, small_chunks(1)), session(net, 0, small_chunks(1));
  session.listen(0);
  session.add_send(0, listening.listen(0).data());
  CHECK_THROWS(session.establish(0.02, Direction::kReceive), ConnectTimeout, "0.020 s");
  const int before = net.accepts;
  std::vector<uint8_t> bytes(10);
  const int memory = session.register_memory(bytes.data(), bytes.size(), kNetPtrHost);
  session.post(session.create(), Direction::kSend, memory, 0, bytes.size());
  CHECK_EQ(net.accepts, before);
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
  Session lonely(deaf, 0, small_chunks(1));
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
  Session refused(refusing, 0, small_chunks(1));
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
  Session session(net, 0, small_chunks(2));
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

TEST(a_listener_with_no_accept_under_way_is_closed_and_another_is_not) {
  struct Nobody : FakeNet {
    int accepts = 0, closed_listeners = 0;
    int accept(void*, void**, NetDeviceHandle**) override {
      ++accepts;
      return 0;
    }
    int close_listen(void*) override {
      ++closed_listeners;
      return 0;
    }
  };
  for (const bool taken : {false, true}) {
    Nobody net;
    Session session(net, 0, small_chunks(2));
    session.take_accepts(taken);
    for (int channel : {0, 1}) session.listen(channel);
    SetupRound setup;
    session.advance(setup);
    CHECK_EQ(setup.over(), taken);
    session.accept();
    CHECK_EQ(net.accepts, taken ? 2 : 0);
    session.close();
    CHECK_EQ(net.closed_listeners, taken ? 0 : 2);
    CHECK_THROWS(session.listen(0), SessionClosed, "closed");
    CHECK_THROWS(session.add_send(0, nullptr), SessionClosed, "closed");
  }
}

CHECK_MAIN()
