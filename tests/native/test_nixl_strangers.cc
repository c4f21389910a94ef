// Who comes to an agent's port: strangers without its metadata, and peers with it who mean no good.
#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "nixl_peers.h"

using namespace stand_in;

TEST(silent_connections_leave_a_small_process_its_descriptors_and_peers_are_served) {
  Child b;
  have_descriptors(4096);
  const size_t at_first = b.ask('o');
  std::vector<Socket> silent;
  for (int i = 0; i < 1010; ++i) silent.push_back(dial(b.info));
  CHECK(comes([&] { return b.ask('o') > at_first + 32; }));
  CHECK_LE(b.ask('o'), at_first + 65);  // the newest comes before the oldest gives way
  CHECK(b.ask('m') > 100);
  Agent a("a");
  CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
  CHECK_EQ(writes(a, "b", b.address, b.blob, kMiB), kSuccess);
}

TEST(whoever_cannot_be_connected_to_is_told_why) {
  Child b(Params{{"plugin", BLOCKING_V9}});  // its connect is refused at once where nobody listens
  const RawPeer peer(b.info, "raw", "b", BLOCKING_V9);
  CHECK(check::contains(peer.refusal, "agent raw: the data path does not come up: "));
}

TEST(whoever_gave_way_to_strangers_dials_again) {
  Child b;
  have_descriptors(4096);
  Agent a("a", false);
  CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
  CHECK_EQ(a.backend->connect("b"), kSuccess);  // and says nothing more until it is asked
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(dial(b.info));
  CHECK(comes([&] { return b.ask('o') > 60; }));
  CHECK_EQ(writes(a, "b", b.address, b.blob, kMiB), kSuccess);
}

TEST(strangers_are_counted_and_told_in_few_lines_without_their_bytes) {
  const Stderr said;
  Agent b("b");
  for (int i = 0; i < 50; ++i) {
    const Socket stranger = dial(b.info());
    std::string hello;
    write_text(hello, FrameType::kNotify,
               "\x1b]0;owned\x07 and \xc2\x9b"
               "31m");
    CHECK(write(stranger.fd(), hello.data(), hello.size()) > 0);
    char rest[64];
    while (read(stranger.fd(), rest, sizeof(rest)) > 0) {
    }
  }
  CHECK(comes([&] { return check::contains(said.text(), "metadata: 32;"); }));
  const std::string all = said.text();
  CHECK_EQ(std::count(all.begin(), all.end(), '\n'), 6);
  CHECK(!check::contains(said.text(), "owned"));
}

TEST(a_name_is_printed_without_what_a_terminal_takes_for_commands) {
  const Stderr said;
  Child b;
  RawPeer peer(b.info,
               "\x1b]0;owned\x07 and \xc2\x9b"
               "31m");
  TransferFrame frame;
  frame.segments = {{1, 0, 100}};
  std::string out;
  write_transfer(out, FrameType::kRead, frame, 0);
  CHECK(peer.send(out));
  CHECK(comes([&] { return check::contains(said.text(), "asked for what it may not"); }));
  CHECK(check::contains(said.text(), "\\x1b]0;owned\\x07 and \\xc2\\x9b31m"));
  CHECK(!check::contains(said.text(), "\x1b"));
  CHECK(!check::contains(said.text(), "\xc2\x9b"));
}

TEST(a_name_that_is_no_utf_8_is_refused_and_others_are_heard) {
  Child b;
  CHECK(check::contains(RawPeer(b.info, "\xff\xfe").refusal, "no UTF-8"));
  CHECK(check::contains(RawPeer(b.info, "cut \xe2\x82").refusal, "no UTF-8"));
  CHECK_EQ(RawPeer(b.info, "caf\xc3\xa9 \n").refusal, "");
  CHECK_EQ(b.ask('w'), 1u);
  CHECK(comes([&] { return b.ask('f') == 1; }));
}

TEST(what_was_recorded_of_a_peer_works_no_second_time_and_has_no_secret_in_it) {
  Agent b("b"), a("a");
  Bytes memory(b, 1000);
  // Between the two, who writes down what a says.
  Socket port(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  CHECK_EQ(bind(port.fd(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  CHECK_EQ(listen(port.fd(), 1), 0);
  getsockname(port.fd(), reinterpret_cast<sockaddr*>(&at), &length);
  std::string recorded, heard;
  std::thread between([&] {
    const Socket here(accept(port.fd(), nullptr, nullptr)), there = dial(b.info());
    const std::pair<int, int> ways[2] = {{here.fd(), there.fd()}, {there.fd(), here.fd()}};
    for (bool open = true; open;) {
      pollfd ready[2] = {{here.fd(), POLLIN, 0}, {there.fd(), POLLIN, 0}};
      if (poll(ready, 2, 20'000) <= 0) break;
      for (int way = 0; way < 2 && open; ++way) {
        if (ready[way].revents == 0) continue;
        char bytes[4096];
        const ssize_t got = read(ways[way].first, bytes, sizeof(bytes));
        open = got > 0 && write(ways[way].second, bytes, got) == got;
        if (open) (way == 0 ? recorded : heard).append(bytes, got);
      }
    }
  });
  ConnectionInfo info = read_connection_info(b.info());
  const std::string secret(reinterpret_cast<const char*>(info.token.bytes), 16);
  info.port = ntohs(at.sin_port);
  info.addresses = {"127.0.0.1"};
  info.machine.clear();
  CHECK_EQ(a.backend->load_connection_info("b", write_connection_info(info)), kSuccess);
  CHECK_EQ(writes(a, "b", memory.data.data(), memory.blob(), 1000, "once"), kSuccess);
  CHECK_EQ(wait_for_note(b).size(), 1u);
  a.backend->disconnect("b");
  between.join();
  CHECK(!recorded.empty());
  for (const std::string* all : {&recorded, &heard}) CHECK(all->find(secret) == std::string::npos);

  std::fill(memory.data.begin(), memory.data.end(), uint8_t{0});
  const Socket again = dial(b.info());
  CHECK_EQ(write(again.fd(), recorded.data(), recorded.size()),
           static_cast<ssize_t>(recorded.size()));
  char rest[4096];
  std::string said;
  for (ssize_t got; (got = read(again.fd(), rest, sizeof(rest))) > 0;) said.append(rest, got);
  CHECK(check::contains(said, "not the engine that the metadata is of"));
  CHECK(b.fetch().empty());
  CHECK(memory.data == std::vector<uint8_t>(1000));
}

TEST(an_agent_whose_metadata_was_invalidated_is_refused_until_it_is_loaded_again) {
  Agent b("b"), a("a");
  Bytes memory(b, 1000);
  CHECK_EQ(a.load(b), kSuccess);
  CHECK_EQ(b.load(a), kSuccess);
  const auto writes_now = [&] { return writes(a, "b", memory.data.data(), memory.blob(), 1000); };
  CHECK_EQ(writes_now(), kSuccess);
  CHECK_EQ(b.backend->disconnect("a"), kSuccess);
  CHECK(comes([&] { return writes_now() != kRemoteDisconnect; }));  // its link had ended
  CHECK_EQ(writes_now(), kNotAllowed);
  CHECK_EQ(b.load(a), kSuccess);
  CHECK_EQ(writes_now(), kSuccess);
}

TEST(a_successor_of_an_agent_whose_metadata_was_invalidated_is_served) {
  Agent b("b");
  Bytes memory(b, 1000);
  std::optional<Agent> a(std::in_place, "a");
  CHECK_EQ(b.load(*a), kSuccess);
  CHECK_EQ(b.backend->disconnect("a"), kSuccess);
  a.reset();
  a.emplace("a");
  CHECK_EQ(a->load(b), kSuccess);
  CHECK_EQ(writes(*a, "b", memory.data.data(), memory.blob(), 1000), kSuccess);
}

TEST(requests_that_are_never_credited_are_borne_up_to_a_bound_of_bytes) {
  Child b;
  RawPeer peer(b.info);
  const uint64_t region = read_region_info(b.blob).region;
  TransferFrame frame;
  for (size_t i = 0; i < kMaxSegments; ++i) frame.segments.push_back({region, i * 2, 1});
  const uint64_t before = b.ask('r');
  bool is_open = true;
  for (frame.id = 0; frame.id < 400 && is_open; ++frame.id) {
    std::string out;
    write_transfer(out, FrameType::kRead, frame, 0);
    is_open = peer.send(out);
  }
  CHECK(comes([&] { return peer.is_closed(); }));
  CHECK_LE(b.ask('r'), before + 100);
  CHECK_EQ(b.ask('w'), 1u);
}

TEST(an_initiator_with_many_large_requests_stays_within_that_bound) {
  Agent b("b"), a("a");
  CHECK_EQ(a.load(b), kSuccess);
  constexpr size_t kBlocks = 40'000;
  Bytes here(a, kBlocks * 64), there(b, kBlocks * 64, 5);
  Known known(a, b, there);
  std::vector<Block> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.push_back({i * 64, 32});
  std::vector<std::unique_ptr<Xfer>> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(std::make_unique<Xfer>(a, i % 2 == 0 ? kRead : kWrite, here, blocks, "b",
                                         there.data.data(), known.metadata, blocks));
    CHECK_EQ(all.back()->post("n"), kInProgress);
  }
  for (const auto& each : all) CHECK_EQ(each->wait(), kSuccess);
}

TEST(who_notifies_of_more_than_is_fetched_waits_and_others_do_not) {
  Child b;
  RawPeer peer(b.info);
  std::string note;
  write_text(note, FrameType::kNotify, std::string(kMaxNotification, 'x'));
  const uint64_t before = b.ask('r');
  int taken = 0;
  while (taken < 100 && peer.send(note, 300)) ++taken;
  CHECK_LE(taken, 50);
  CHECK_LE(b.ask('r'), before + 60);
  CHECK_EQ(b.ask('w'), 1u);
  CHECK(comes([&] { return b.ask('f') == 1; }));
}

TEST(a_remote_for_which_too_few_descriptors_are_left_is_refused_and_says_why) {
  Child b;
  have_descriptors(4096);
  std::vector<std::unique_ptr<RawPeer>> peers;
  while (peers.size() < 40 && (peers.empty() || peers.back()->refusal.empty())) {
    peers.push_back(std::make_unique<RawPeer>(b.info, "peer " + std::to_string(peers.size())));
  }
  CHECK(peers.size() > 8);
  CHECK(check::contains(peers.back()->refusal, "too few descriptors left"));
  CHECK(check::contains(peers.back()->refusal, "(it may have 256: ulimit -n)"));
  CHECK(b.ask('m') > 5);
}

TEST(initiators_that_die_after_their_first_post_leave_nothing) {
  Child b;
  const size_t before = b.ask('o');
  for (int life = 0; life < 24; ++life) {
    const pid_t pid = fork();
    if (pid == 0) {
      Agent a("a" + std::to_string(life), life % 2 == 0);
      a.backend->load_connection_info("b", b.info);
      Bytes here(a, kMiB, 1);
      Known known(a, "b", b.blob);
      Xfer out(a, kWrite, here, {{0, kMiB}}, "b", b.address, known.metadata, {{0, kMiB}});
      out.post();
      const int64_t until = tcpx::now_ns() + life * 300'000;  // somewhere in its set-up
      while (tcpx::now_ns() < until) out.check();
      kill(getpid(), SIGKILL);
    }
    waitpid(pid, nullptr, 0);
  }
  CHECK(comes([&] { return b.ask('o') <= before; }));
  Agent a("a");
  CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
  CHECK_EQ(writes(a, "b", b.address, b.blob, kMiB), kSuccess);
}

TEST(a_target_that_dies_in_the_set_up_leaves_nothing_with_its_initiator) {
  have_descriptors(256);
  Agent a("a");
  { Child b; }
  const size_t before = descriptors();
  for (int life = 0; life < 12; ++life) {
    {
      Child b;
      CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
      CHECK_EQ(a.backend->connect("b"), kSuccess);
      const int64_t until = tcpx::now_ns() + life * 300'000;
      while (tcpx::now_ns() < until) sched_yield();
    }
    a.backend->disconnect("b");
  }
  CHECK(comes([&] { return a.fetch(), descriptors() <= before; }));
}

CHECK_MAIN()
