// What goes wrong between two agents of NIXL: each a status, nothing moved, and life goes on.
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "library/nixl/wire.h"
#include "nixl_agent.h"

using namespace stand_in;

namespace {

constexpr uint64_t kMiB = 1 << 20;

struct Two {
  explicit Two(Params of_a = {}, Params of_b = {}) : a("a", true, of_a), b("b", true, of_b) {}
  Agent a, b;
};

// A region of b's as a forger would tell of it.
std::string forged(const Bytes& memory, uint64_t more_bytes, uint64_t other_region = 0) {
  RegionInfo info = read_region_info(memory.blob());
  info.bytes += more_bytes;
  info.region ^= other_region;
  return write_region_info(info);
}

void works(Two& two) {
  Bytes from(two.a, 3 * kMiB, 1), to(two.b, 3 * kMiB);
  Known known(two.a, two.b, to);
  Xfer out(two.a, kWrite, from, {{0, 3 * kMiB}}, "b", to.data.data(), known.metadata,
           {{0, 3 * kMiB}});
  CHECK_EQ(out.run(), kSuccess);
  CHECK(to.data == from.data);
}

// A process with agent "b", which has memory and does nothing; its connection info and the
// memory's metadata.
struct Child {
  explicit Child(uint64_t bytes) {
    int pipes[2];
    CHECK_EQ(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
      Agent b("b");
      Bytes memory(b, bytes, 3);
      for (const std::string& text : {b.info(), memory.blob()}) {
        const uint64_t length = text.size();
        if (write(pipes[1], &length, sizeof(length)) < 0) _exit(1);
        if (write(pipes[1], text.data(), length) < 0) _exit(1);
      }
      for (;;) pause();
    }
    for (std::string* text : {&info, &blob}) {
      uint64_t length = 0;
      CHECK_EQ(read(pipes[0], &length, sizeof(length)), ssize_t{sizeof(length)});
      text->resize(length);
      CHECK_EQ(read(pipes[0], text->data(), length), static_cast<ssize_t>(length));
    }
    const RegionInfo region = read_region_info(blob);
    address = reinterpret_cast<const uint8_t*>(region.address);
  }
  ~Child() { die(); }
  void die() {
    if (pid == 0) return;
    kill(pid, SIGKILL);
    waitpid(std::exchange(pid, 0), nullptr, 0);
  }
  pid_t pid;
  std::string info, blob;
  const uint8_t* address;
};

}  // namespace

TEST(a_target_refuses_what_it_has_not_registered_and_nothing_moves) {
  Two two;
  CHECK_EQ(two.a.load(two.b), kSuccess);
  for (const uint64_t size : {uint64_t{4096}, 2 * kMiB}) {  // in the control stream, and not
    Bytes here(two.a, 2 * size, 1), there(two.b, size);
    // As two segments, of which one would be right.
    const std::vector<Block> blocks{{0, size / 2}, {size / 2 + 1, size}};
    for (const uint64_t other_region : {0, 1}) {
      Known lie(two.a, "b", forged(there, 4 * size, other_region));
      for (const Operation operation : {kWrite, kRead}) {
        const std::vector<uint8_t> before = here.data;
        Xfer out(two.a, operation, here, blocks, "b", there.data.data(), lie.metadata, blocks);
        CHECK_EQ(out.prepared, kSuccess);
        CHECK_EQ(out.run("never"), kNotAllowed);
        CHECK(there.data == std::vector<uint8_t>(size));
        CHECK(here.data == before);
      }
    }
  }
  CHECK(two.b.fetch().empty());
  works(two);
}

TEST(memory_that_was_let_go_is_refused) {
  Two two;
  CHECK_EQ(two.a.load(two.b), kSuccess);
  Bytes here(two.a, kMiB, 1), there(two.b, kMiB);
  Known known(two.a, two.b, there);
  Xfer out(two.a, kWrite, here, {{0, kMiB}}, "b", there.data.data(), known.metadata, {{0, kMiB}});
  CHECK_EQ(out.run(), kSuccess);
  CHECK_EQ(there.let_go(), kSuccess);
  std::fill(there.data.begin(), there.data.end(), uint8_t{0});
  CHECK_EQ(out.run(), kNotAllowed);
  CHECK(there.data == std::vector<uint8_t>(kMiB));
  CHECK_EQ(here.let_go(), kSuccess);
  CHECK_EQ(out.post(), kInvalidParam);
  works(two);
}

TEST(descriptors_outside_of_registered_memory_are_refused_when_prepared) {
  Two two;
  CHECK_EQ(two.a.load(two.b), kSuccess);
  Bytes here(two.a, 1000), there(two.b, 1000);
  Known known(two.a, two.b, there);
  auto prepared = [&](Block of_a, Block of_b, Metadata* metadata) {
    return Xfer(two.a, kWrite, here, {of_a}, "b", there.data.data(), metadata, {of_b}).prepared;
  };
  CHECK_EQ(prepared({0, 1000}, {0, 1000}, known.metadata), kSuccess);
  CHECK_EQ(prepared({1, 1000}, {0, 1000}, known.metadata), kInvalidParam);
  CHECK_EQ(prepared({0, 1000}, {1, 1000}, known.metadata), kInvalidParam);
  CHECK_EQ(prepared({0, 1000}, {UINT64_MAX, 1000}, known.metadata), kInvalidParam);
  CHECK_EQ(prepared({0, 10}, {0, 11}, known.metadata), kMismatch);
  CHECK_EQ(prepared({0, 10}, {0, 10}, there.local), kInvalidParam);
  works(two);
}

TEST(memory_of_another_engine_is_neither_sent_nor_let_go) {
  Two two;
  CHECK_EQ(two.a.load(two.b), kSuccess);
  Bytes here(two.b, 1000), there(two.b, 1000);
  Known known(two.a, two.b, there);
  Xfer out(two.a, kWrite, here, {{0, 10}}, "b", there.data.data(), known.metadata, {{0, 10}});
  CHECK_EQ(out.prepared, kInvalidParam);
  CHECK_EQ(two.a.backend->deregister_memory(here.local), kInvalidParam);
  CHECK_EQ(here.let_go(), kSuccess);
  works(two);
}

TEST(an_agent_that_was_never_loaded_is_not_found) {
  Two two;
  Bytes here(two.a, 1000), there(two.b, 1000);
  Known known(two.a, two.b, there);
  CHECK_EQ(two.a.backend->connect("b"), kNotFound);
  CHECK_EQ(two.a.backend->notify("b", "x"), kNotFound);
  CHECK_EQ(two.a.backend->disconnect("b"), kSuccess);
  Xfer out(two.a, kWrite, here, {{0, 9}}, "b", there.data.data(), known.metadata, {{0, 9}});
  CHECK_EQ(out.prepared, kNotFound);
}

TEST(connection_info_of_other_settings_or_none_is_a_mismatch) {
  Two two({{"channels", "1"}}, {{"channels", "2"}});
  CHECK_EQ(two.a.load(two.b), kMismatch);
  CHECK_EQ(two.a.backend->load_connection_info("b", "rubbish"), kMismatch);
  CHECK_EQ(two.a.backend->load_connection_info("b", two.b.info().substr(0, 60)), kMismatch);
  Bytes there(two.b, 1000);
  Metadata* metadata = nullptr;
  CHECK_EQ(two.a.backend->load_remote_metadata({{0, 0, 0}, "rubbish"}, kDram, "b", metadata),
           kMismatch);
}

TEST(an_option_that_is_no_number_fails_the_backend_and_not_the_process) {
  const Agent bad("a", true, {{"channels", "many"}});
  CHECK(bad.backend->init_failed());
  const Agent none("a", true, {{"plugin", "/nowhere/libnccl-net.so"}});
  CHECK(none.backend->init_failed());
}

TEST(info_of_an_engine_that_is_gone_ends_as_a_remote_disconnect) {
  Agent a("a", true, {{"connect_patience_s", "2"}});
  std::string info, blob;
  const uint8_t* address;
  {
    Agent b("b");
    Bytes there(b, 100);
    info = b.info();
    blob = there.blob();
    address = there.data.data();
  }
  CHECK_EQ(a.backend->load_connection_info("b", info), kSuccess);
  Bytes here(a, 100);
  Known known(a, "b", blob);
  Xfer out(a, kWrite, here, {{0, 100}}, "b", address, known.metadata, {{0, 100}});
  CHECK_EQ(out.run(), kRemoteDisconnect);
}

TEST(info_of_another_engine_or_agent_at_the_same_port_is_refused_there) {
  Two two;
  ConnectionInfo before = read_connection_info(two.b.info());
  before.token.bytes[0] ^= 1;
  Bytes here(two.a, 100, 1), there(two.b, 100);
  for (const auto& [name, info] :
       {std::pair<std::string, std::string>{"b", write_connection_info(before)},
        {"c", two.b.info()}}) {
    CHECK_EQ(two.a.backend->load_connection_info(name, info), kSuccess);
    Known known(two.a, name, there.blob());
    Xfer out(two.a, kWrite, here, {{0, 100}}, name, there.data.data(), known.metadata, {{0, 100}});
    CHECK_EQ(out.run("never"), kNotAllowed);
  }
  CHECK(two.b.fetch().empty());
  CHECK(there.data == std::vector<uint8_t>(100));
  CHECK_EQ(two.a.load(two.b), kSuccess);
  works(two);
}

TEST(an_agent_of_the_same_name_that_came_anew_is_reached_by_its_own_info) {
  Agent a("a");
  for (int life = 0; life < 2; ++life) {
    Agent b("b");
    CHECK_EQ(a.load(b), kSuccess);
    Bytes here(a, kMiB, 5), there(b, kMiB);
    Known known(a, b, there);
    Xfer out(a, kWrite, here, {{0, kMiB}}, "b", there.data.data(), known.metadata, {{0, kMiB}});
    CHECK_EQ(out.run(), kSuccess);
    CHECK(there.data == here.data);
  }
}

TEST(a_peer_that_dies_ends_what_is_under_way_within_a_second) {
  Child b(64 * kMiB), other(1000);
  Agent a("a");
  CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
  Bytes here(a, 64 * kMiB);
  Known known(a, "b", b.blob);
  Xfer first(a, kRead, here, {{0, 100}}, "b", b.address, known.metadata, {{0, 100}});
  CHECK_EQ(first.run(), kSuccess);  // the connection is there
  Xfer out(a, kRead, here, {{0, 64 * kMiB}}, "b", b.address, known.metadata, {{0, 64 * kMiB}});
  CHECK_EQ(out.post(), kInProgress);
  b.die();
  CHECK_EQ(out.wait(), kRemoteDisconnect);
  CHECK_EQ(a.backend->disconnect("b"), kSuccess);
  CHECK_EQ(here.let_go(), kSuccess);
  CHECK_EQ(a.backend->load_connection_info("b", other.info), kSuccess);
  Bytes again(a, 1000);
  Known known_again(a, "b", other.blob);
  Xfer in(a, kRead, again, {{0, 1000}}, "b", other.address, known_again.metadata, {{0, 1000}});
  CHECK_EQ(in.run(), kSuccess);
  CHECK_NE(int{again.data[17]}, 0);
}

// Descriptors that an epoll of this process watches, and that this process has closed.
static int watched_and_closed() {
  std::vector<int> watched;
  for (int fd = 0; fd < 256; ++fd) {
    std::ifstream lines("/proc/self/fdinfo/" + std::to_string(fd));
    for (std::string line; std::getline(lines, line);) {
      if (line.compare(0, 4, "tfd:") == 0) watched.push_back(std::stoi(line.substr(4)));
    }
  }
  CHECK(!watched.empty());
  auto is_closed = [](int fd) { return fcntl(fd, F_GETFD) < 0; };
  return static_cast<int>(std::count_if(watched.begin(), watched.end(), is_closed));
}

TEST(a_dead_peers_socket_is_watched_no_more_though_a_forked_child_has_it_too) {
  Child b(1000);
  Agent a("a", false);
  CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
  Bytes here(a, 1000);
  Known known(a, "b", b.blob);
  Xfer in(a, kRead, here, {{0, 1000}}, "b", b.address, known.metadata, {{0, 1000}});
  CHECK_EQ(in.run(), kSuccess);
  const pid_t bystander = fork();
  if (bystander == 0) {
    for (;;) pause();
  }
  b.die();
  CHECK_EQ(in.run(), kRemoteDisconnect);
  a.fetch();
  CHECK_EQ(watched_and_closed(), 0);
  kill(bystander, SIGKILL);
  waitpid(bystander, nullptr, 0);
}

TEST(a_forked_child_is_refused_its_parents_agent_which_goes_on) {
  Two two;
  CHECK_EQ(two.a.load(two.b), kSuccess);
  works(two);
  Bytes here(two.a, 1000, 1), there(two.b, 1000);
  Known known(two.a, two.b, there);
  Xfer out(two.a, kWrite, here, {{0, 1000}}, "b", there.data.data(), known.metadata, {{0, 1000}});
  const auto ask_all = [&] {
    Notifications notes;
    Metadata* metadata = nullptr;
    uint8_t more[64];
    const BlobDescriptor memory{{reinterpret_cast<uintptr_t>(more), sizeof(more), 0}, ""};
    CHECK_EQ(out.post("from the child"), kNotAllowed);
    CHECK_EQ(out.check(), kNotAllowed);
    CHECK_EQ(two.b.backend->notifications(notes), kNotAllowed);
    CHECK_EQ(two.a.backend->notify("b", "x"), kNotAllowed);
    CHECK_EQ(two.a.backend->connect("b"), kNotAllowed);
    CHECK_EQ(two.a.backend->disconnect("b"), kNotAllowed);
    CHECK_EQ(two.a.load(two.b), kNotAllowed);
    CHECK_EQ(two.a.backend->register_memory(memory, kDram, metadata), kNotAllowed);
    CHECK_EQ(two.a.backend->load_local_metadata(here.local, metadata), kNotAllowed);
    CHECK_EQ(two.a.backend->deregister_memory(here.local), kNotAllowed);
    const Xfer another(two.a, kWrite, here, {{0, 9}}, "b", there.data.data(), known.metadata,
                       {{0, 9}});
    CHECK_EQ(another.prepared, kNotAllowed);
    CHECK(notes.empty() && metadata == nullptr && another.request == nullptr);
  };
  const auto in_a_child = [](const auto& what) {
    const pid_t child = fork();
    if (child == 0) {
      what();
      _exit(check::failures() == 0 ? 0 : 1);
    }
    int ended = -1;
    waitpid(child, &ended, 0);
    CHECK_EQ(ended, 0);
  };
  in_a_child([&] {
    ask_all();
    in_a_child(ask_all);  // a grandchild is no parent again
    two.a.backend.reset();
    Agent own("c");
    CHECK(!own.backend->init_failed());
    in_a_child([&] { CHECK_EQ(own.backend->notify("c", "x"), kNotAllowed); });
    CHECK_EQ(own.backend->notify("c", "x"), kSuccess);
  });
  CHECK_EQ(out.run("from the parent"), kSuccess);
  CHECK_EQ(wait_for_note(two.b)[0].second, "from the parent");
}

TEST(time_in_which_nobody_looks_is_no_time_without_progress) {
  const Params impatient{{"patience_s", "0.2"}};
  Agent a("a", false, impatient), b("b", false, impatient);
  CHECK_EQ(a.load(b), kSuccess);
  Bytes here(a, 3 * kMiB, 1), there(b, 3 * kMiB);
  Known known(a, b, there);
  Xfer out(a, kWrite, here, {{0, 3 * kMiB}}, "b", there.data.data(), known.metadata,
           {{0, 3 * kMiB}});
  CHECK_EQ(out.run(nullptr, {&b}), kSuccess);
  const auto look_away = [] {
    const int64_t until = tcpx::now_ns() + 300'000'000;
    while (tcpx::now_ns() < until) sched_yield();
  };
  look_away();
  CHECK_EQ(out.post(), kInProgress);
  CHECK_EQ(out.check(), kInProgress);  // the other side has not looked yet
  look_away();
  CHECK_EQ(out.wait({&b}), kSuccess);
}

TEST(an_error_of_a_part_is_told_when_no_part_is_open_any_more) {
  Agent a("a", false), b("b", false);
  CHECK_EQ(a.load(b), kSuccess);
  constexpr size_t kBlocks = 20'000;  // more than one frame takes
  Bytes here(a, kBlocks * 128), there(b, kBlocks * 128, 3), gone(b, 64);
  const Known known(a, b, there), known_gone(a, b, gone);
  CHECK_EQ(gone.let_go(), kSuccess);
  std::vector<Block> blocks;
  for (size_t i = 0; i < kBlocks; ++i) blocks.push_back({i * 128, 64});
  MetaList to = list_of(here.data.data(), here.local, blocks);
  MetaList from = list_of(there.data.data(), known.metadata, blocks);
  from.entries().back() = {{reinterpret_cast<uintptr_t>(gone.data.data()), 64, 0},
                           known_gone.metadata};
  Request* request = nullptr;
  CHECK_EQ(a.backend->prepare(kRead, to, from, "b", request, nullptr), kSuccess);
  Status status = a.backend->post(kRead, to, from, "b", request, nullptr);
  const int64_t deadline = tcpx::now_ns() + kDeadlineNs;
  while (status == kInProgress && tcpx::now_ns() < deadline) {
    b.fetch();
    status = a.backend->check(request);
  }
  CHECK_EQ(status, kNotAllowed);
  CHECK_EQ(a.backend->release(request), kSuccess);
  const std::vector<uint8_t> then = here.data;  // the memory is the caller's again
  CHECK_NE(int{then[17]}, 0);                   // the other part was under way
  Bytes more(a, 64);
  Xfer later(a, kRead, more, {{0, 64}}, "b", there.data.data(), known.metadata, {{0, 64}});
  CHECK_EQ(later.run(nullptr, {&b}), kSuccess);
  for (int round = 0; round < 200; ++round) a.fetch(), b.fetch();
  CHECK(here.data == then);
}

TEST(a_peer_that_stops_counts_as_lost_when_patience_ends) {
  Child b(8 * kMiB);
  Agent a("a", true, {{"patience_s", "0.2"}});
  CHECK_EQ(a.backend->load_connection_info("b", b.info), kSuccess);
  Bytes here(a, 8 * kMiB);
  Known known(a, "b", b.blob);
  Xfer out(a, kRead, here, {{0, 8 * kMiB}}, "b", b.address, known.metadata, {{0, 8 * kMiB}});
  CHECK_EQ(out.run(), kSuccess);
  kill(b.pid, SIGSTOP);
  int stopped = 0;  // a signal is on its way when kill() returns; b may still serve a whole read
  CHECK_EQ(waitpid(b.pid, &stopped, WUNTRACED), b.pid);
  CHECK(WIFSTOPPED(stopped));
  CHECK_EQ(out.run(), kRemoteDisconnect);
}

TEST(a_plugin_call_that_never_returns_ends_the_process_where_that_was_asked_for) {
  int pipes[2];
  CHECK_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    setenv("TCPX_P2P_CALL_TIMEOUT_S", "1", 1);
    setenv("PLANT_REAL", SOFTTCPX_PLUGIN, 1);
    setenv("PLANT_CALL", "test", 1);
    setenv("PLANT_DO", "hang", 1);
    Two two({{"plugin", PLANTED}}, {{"plugin", PLANTED}});
    two.a.load(two.b);
    works(two);
    _exit(0);
  }
  close(pipes[1]);
  std::string printed(4096, '\0');
  printed.resize(std::max<ssize_t>(read(pipes[0], printed.data(), printed.size()), 0));
  int ended = -1;
  waitpid(child, &ended, 0);
  CHECK(WIFEXITED(ended));
  CHECK_EQ(WEXITSTATUS(ended), 6);
  CHECK(check::contains(printed, "plugin call test of a session has not returned for "));
  CHECK(check::contains(printed, ": longer than TCPX_P2P_CALL_TIMEOUT_S (1 s)"));
}

TEST(whoever_speaks_another_protocol_is_sent_away_and_others_are_served) {
  Two two;
  CHECK_EQ(two.a.load(two.b), kSuccess);
  const ConnectionInfo info = read_connection_info(two.b.info());
  const int stranger = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(info.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(connect(stranger, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::string hello = "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n";
  CHECK_EQ(write(stranger, hello.data(), hello.size()), static_cast<ssize_t>(hello.size()));
  char rest[16];
  while (read(stranger, rest, sizeof(rest)) > 0) {  // the challenge, then the end
  }
  close(stranger);
  works(two);
}

CHECK_MAIN()
