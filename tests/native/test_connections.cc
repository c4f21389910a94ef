// Listening, connecting, closing, against plugins that take their time, refuse, or are unusual.
#include <csignal>
#include <map>

#include "engine/clock.h"
#include "engine/signals.h"
#include "net/plugin_call.h"
#include "net/plugin_error.h"
#include "rig.h"

using namespace tcpx;

namespace {

constexpr int32_t kPristine = 0x7a7a7a7a;

// A plugin that connects and accepts when a test says so, and looks at what it is handed.
class SlowNet : public FakeNet {
 public:
  std::function<bool(Call, int)> comes_up = [](Call, int turn) { return turn >= 3; };
  std::function<int(Call, int)> refuses = [](Call, int) { return 0; };
  int device_type = kNetDeviceHost;
  int device_version = 0;
  std::vector<std::pair<Call, void*>> order;  // with the handle, or the listener
  std::vector<std::string> closing;
  std::map<void*, int> turns;
  std::map<void*, bool> over;
  std::vector<NetDeviceHandle*> blocks;

  int properties(int, NetProperties* out) override {
    *out = {};
    out->device_type = device_type;
    out->device_version = device_version;
    return 0;
  }
  int listen(int, void* handle, void** listen_comm) override {
    memset(handle, 0x20 + listeners_, kNetHandleBytes);
    *listen_comm = &listener_[listeners_++];
    return 0;
  }
  int connect(int, void* handle, void** comm, NetDeviceHandle** device) override {
    if (device == nullptr || *device != nullptr) breach("connect's device handle is not NULL", {});
    // The state that a plugin keeps in the handle: how often it was here.
    int32_t state[2];
    memcpy(state, handle, sizeof(state));
    if (state[0] != turns[handle]) breach("a handle that moved", nullptr);
    if (state[1] != kPristine) breach("a handle that is not as it was given", nullptr);
    ++state[0];
    memcpy(handle, state, sizeof(state));
    return poll(Call::kConnect, handle, true, comm);
  }
  int accept(void* listen_comm, void** comm, NetDeviceHandle** device) override {
    if (device == nullptr) {
      breach("accept without room for a device handle", nullptr);
    } else {
      blocks.push_back(*device);
      if (*device != nullptr) look_at(**device);
    }
    return poll(Call::kAccept, listen_comm, false, comm);
  }
  int reg_mr(void* comm, void* data, size_t bytes, int type, void** mhandle) override {
    return FakeNet::reg_mr(comm, data, bytes, type, mhandle);
  }
  int dereg_mr(void*, void*) override { return closing_call("deregMr"); }
  int close_send(void*) override { return closing_call("closeSend"); }
  int close_recv(void*) override { return closing_call("closeRecv"); }
  int close_listen(void*) override { return closing_call("closeListen"); }
  std::string closing_fails;

 private:
  void look_at(const NetDeviceHandle& block) {
    if (reinterpret_cast<uintptr_t>(&block) % 16 != 0) breach("a block that is not aligned", {});
    if (block.type != kNetDeviceUnpack || block.version != kNetUnpackVersion) {
      breach("a block that does not say {1, 7}", nullptr);
    }
    if (block.handle != nullptr || block.size != 0 || block.needs_proxy_progress != 0) {
      breach("a block that is not zeroed", nullptr);
    }
  }
  int poll(Call call, void* key, bool sends, void** comm) {
    if (over[key]) breach("called again after success or error", nullptr);
    if (*comm != nullptr) breach("a comm that is not NULL beforehand", nullptr);
    order.push_back({call, key});
    const int turn = ++turns[key];
    if (const int code = refuses(call, turn)) {
      over[key] = true;
      return code;
    }
    if (!comes_up(call, turn)) return 0;
    over[key] = true;
    established_.push_back({});
    established_.back().sends = sends;
    *comm = &established_.back();
    return 0;
  }
  int closing_call(const char* call) {
    closing.push_back(call);
    return closing_fails == call ? 2 : 0;
  }

  int listeners_ = 0;
  char listener_[64] = {};
  std::deque<FakeComm> established_;
};

std::array<uint8_t, kNetHandleBytes> given_handle() {
  std::array<uint8_t, kNetHandleBytes> handle{};
  memcpy(handle.data() + 4, &kPristine, 4);
  return handle;
}

void add_comms(Connections& connections, int sends, int receives) {
  for (int i = 0; i < receives; ++i) connections.listen(kPeer, 0, i);
  for (int i = 0; i < sends; ++i) connections.add_send(kPeer, 0, i, given_handle().data());
}

}  // namespace

TEST(connects_and_accepts_are_polled_together) {
  SlowNet net;
  // A peer like ours: nothing comes up before everything has been polled twice.
  net.comes_up = [&](Call, int) {
    if (net.turns.size() < 6) return false;
    for (const auto& [key, turns] : net.turns) {
      if (turns < 2) return false;
    }
    return true;
  };
  Connections connections(net, 0);
  add_comms(connections, 3, 3);
  connections.establish(1.0);
  for (const auto& comm : connections.comms()) CHECK(comm->comm != nullptr);
  CHECK_CONTRACT(net);
}

TEST(no_accept_is_polled_before_all_connects_are_begun) {
  for (const int needed : {1, 2, 4}) {  // polls until a peer hears of a connect
    SlowNet net;
    bool blocks = false;  // an accept, for ever
    Connections connections(net, 0);
    net.comes_up = [&](Call call, int turn) {
      if (call == Call::kConnect) return turn >= needed;
      blocks |= connections.pending(Direction::kSend) > 0;
      return true;
    };
    add_comms(connections, 3, 3);
    connections.establish(1.0);
    CHECK(!blocks);
    CHECK_CONTRACT(net);
  }
}

TEST(accepts_wait_until_the_peers_have_begun_to_connect) {
  SlowNet net;
  int asked = 0, accepts = 0;
  net.comes_up = [&](Call call, int turn) {
    accepts += call == Call::kAccept;
    return call == Call::kAccept || turn > 20;
  };
  Connections connections(net, 0);
  add_comms(connections, 2, 2);
  connections.establish(1.0, nullptr, [&] {
    CHECK_EQ(accepts, 0);
    for (const auto& [key, turns] : net.turns) CHECK_LT(0, turns);
    return ++asked == 5;
  });
  CHECK_EQ(asked, 5);
  CHECK_EQ(accepts, 2);
  CHECK_CONTRACT(net);
}

TEST(a_rank_whose_connects_are_up_at_once_tells_of_them) {
  SlowNet net;
  net.comes_up = [](Call, int) { return true; };
  Connections connections(net, 0);
  add_comms(connections, 2, 0);
  int asked = 0;
  connections.establish(1.0, nullptr, [&] { return ++asked > 1; });
  CHECK_EQ(asked, 1);  // and it has nobody to wait for
}

TEST(connect_works_on_a_copy_of_the_handle_that_never_moves) {
  SlowNet net;
  net.comes_up = [](Call, int turn) { return turn >= 20; };
  Connections connections(net, 0);
  const auto given = given_handle();
  auto theirs = given;
  for (int i = 0; i < 40; ++i) connections.add_send(kPeer, 0, i, theirs.data());
  theirs.fill(0);  // the caller's bytes may go at once
  connections.establish(1.0);
  CHECK_EQ(net.order.size(), 40u * 20);
  CHECK(given == given_handle());
  CHECK_CONTRACT(net);
}

TEST(listen_gives_the_handle_as_the_plugin_wrote_it) {
  SlowNet net;
  Connections connections(net, 0);
  const auto first = connections.listen(kPeer, 0, 0);
  const auto second = connections.listen(kPeer, 0, 1);
  CHECK_EQ(first[0], 0x20);
  CHECK_EQ(second[127], 0x21);
}

TEST(accept_is_given_a_null_device_handle_by_default) {
  for (const auto& [type, version] : {std::pair{0, 0}, {0, 7}, {1, 6}, {2, 7}}) {
    SlowNet net;
    net.device_type = type;
    net.device_version = version;
    Connections connections(net, 0);
    add_comms(connections, 0, 2);
    connections.establish(1.0);
    CHECK_EQ(net.blocks.size(), 6u);
    for (const NetDeviceHandle* block : net.blocks) CHECK(block == nullptr);
    CHECK_CONTRACT(net);
  }
}

TEST(accept_is_given_a_zeroed_block_where_the_plugin_unpacks) {
  SlowNet net;
  net.device_type = kNetDeviceUnpack;
  net.device_version = kNetUnpackVersion;
  Connections connections(net, 0);
  add_comms(connections, 1, 2);
  connections.establish(1.0);
  CHECK_EQ(net.blocks.size(), 6u);
  for (NetDeviceHandle* block : net.blocks) CHECK(block != nullptr);
  // One block a comm, the same one at every call.
  CHECK_NE(net.blocks[0], net.blocks[1]);
  for (size_t i = 2; i < 6; ++i) CHECK_EQ(net.blocks[i], net.blocks[i % 2]);
  CHECK_EQ(connections.comms()[0]->device_handle, net.blocks[0]);
  CHECK_CONTRACT(net);
}

TEST(a_refusal_is_named_and_that_handle_is_never_used_again) {
  for (const Call refused : {Call::kConnect, Call::kAccept}) {
    SlowNet net;
    net.refuses = [&](Call call, int turn) { return call == refused && turn == 2 ? 6 : 0; };
    Connections connections(net, 0);
    add_comms(connections, 2, 2);
    CHECK_THROWS(connections.establish(1.0), PluginError, "returned 6 (remote error)");
    const size_t calls = net.order.size();
    CHECK_THROWS(connections.establish(1.0), std::logic_error, "refused before");
    CHECK_EQ(net.order.size(), calls);
    CHECK(net.closing.empty());  // no closeListen while an accept is pending
    CHECK_CONTRACT(net);
  }
}

TEST(a_refusal_says_which_connection) {
  SlowNet net;
  net.refuses = [](Call, int) { return 2; };
  Connections connections(net, 0);
  connections.add_send(7, 1, 3, given_handle().data());
  CHECK_THROWS(connections.establish(1.0), PluginError,
               "plugin call connect returned 2 (system error): to rank 7, lane 1, channel 3");
}

TEST(what_does_not_come_up_is_named_after_the_deadline) {
  SlowNet net;
  net.comes_up = [](Call call, int turn) { return call == Call::kConnect && turn > 1; };
  Connections connections(net, 0);
  add_comms(connections, 2, 0);
  for (int peer : {4, 5, 6}) connections.listen(peer, 0, 1);
  const int64_t start = now_ns();
  CHECK_THROWS(connections.establish(0.1), ConnectTimeout,
               "3 of 5 connections did not come up within 0.100 s: from rank 4, lane 0, channel 1; "
               "from rank 5, lane 0, channel 1; from rank 6, lane 0, channel 1");
  CHECK_LE(100'000'000, now_ns() - start);
  CHECK(net.closing.empty());
  CHECK_CONTRACT(net);
}

TEST(the_deadline_is_on_lack_of_progress) {
  SlowNet net;
  int64_t last = now_ns();
  net.comes_up = [&](Call, int) {  // one every 30 ms, where 300 ms without any are too long
    if (now_ns() - last < 30'000'000) return false;
    last = now_ns();
    return true;
  };
  Connections connections(net, 0);
  add_comms(connections, 6, 6);
  connections.establish(0.3);
  CHECK_CONTRACT(net);
}

TEST(a_signal_ends_the_wait_for_connections) {
  install_signal_handlers();
  SlowNet net;
  net.comes_up = [](Call, int turn) {
    if (turn == 5) raise(SIGINT);
    return false;
  };
  Connections connections(net, 0);
  add_comms(connections, 1, 1);
  CHECK_THROWS(connections.establish(20.0), Interrupt, "interrupted");
}

TEST(only_listeners_whose_accept_is_done_are_closed) {
  SlowNet net;
  net.comes_up = [](Call call, int) { return call == Call::kConnect; };
  Connections connections(net, 0);
  add_comms(connections, 1, 1);
  CHECK(connections.poll());
  connections.close_listeners();
  CHECK(net.closing.empty());
  CHECK_EQ(connections.pending(), 1u);
  CHECK_EQ(connections.pending(Direction::kReceive), 1u);
  CHECK_EQ(connections.pending(Direction::kSend), 0u);
  net.comes_up = [](Call, int) { return true; };
  CHECK(connections.poll());
  CHECK_EQ(connections.pending(), 0u);
  connections.close_listeners();
  CHECK_EQ(net.closing.size(), 1u);
  CHECK_CONTRACT(net);
}

TEST(listeners_that_nobody_waited_at_are_closed_with_the_rest) {
  SlowNet net;
  Connections connections(net, 0);
  add_comms(connections, 0, 3);
  connections.close();
  CHECK(net.closing == std::vector<std::string>(3, "closeListen"));
  SlowNet waiting;
  waiting.comes_up = [](Call, int turn) { return turn > 100; };
  Connections others(waiting, 0);
  add_comms(others, 0, 2);
  others.poll();  // an accept is pending: the contract forbids it
  others.close();
  CHECK(waiting.closing.empty());
}

TEST(a_refused_region_releases_those_before_it) {
  SlowNet net;
  Connections connections(net, 0);
  add_comms(connections, 1, 0);
  connections.establish(1.0);
  struct Second : SlowNet {
    int reg_mr(void*, void*, size_t, int, void** mhandle) override {
      *mhandle = this;
      return ++asked == 2 ? kNetSystemError : 0;
    }
    int asked = 0;
  } picky;
  // Never touched: only its size matters.
  uint8_t* const somewhere = reinterpret_cast<uint8_t*>(uintptr_t{1} << 40);
  CHECK_THROWS(register_regions(picky, *connections.comms()[0], somewhere, size_t{3} << 30, 1),
               PluginError, "regMr returned 2 (system error): to rank 1, lane 0, channel 0");
  CHECK(picky.closing == std::vector<std::string>({"deregMr"}));
}

TEST(listeners_are_closed_once_everything_is_up) {
  SlowNet net;
  Connections connections(net, 0);
  add_comms(connections, 2, 2);
  connections.establish(1.0);
  CHECK(net.closing == std::vector<std::string>({"closeListen", "closeListen"}));
}

TEST(memory_is_deregistered_before_its_comm_is_closed) {
  SlowNet net;
  Connections connections(net, 0);
  add_comms(connections, 1, 1);
  connections.establish(1.0);
  std::vector<uint8_t> memory(8192);
  connections.register_buffer(0, memory.data(), memory.size(), kNetPtrHost);
  connections.register_buffer(1, memory.data(), memory.size(), kNetPtrHost);
  net.closing.clear();
  connections.close();
  CHECK(net.closing == std::vector<std::string>(
                           {"deregMr", "deregMr", "closeRecv", "deregMr", "deregMr", "closeSend"}));
  connections.close();  // nothing is left to close
  CHECK_EQ(net.closing.size(), 6u);
  CHECK_EQ(connections.find(Direction::kSend, kPeer, 0, 0), nullptr);
}

TEST(a_close_that_fails_is_reported_after_all_are_closed) {
  SlowNet net;
  net.closing_fails = "closeSend";
  Connections connections(net, 0);
  add_comms(connections, 2, 1);
  connections.establish(1.0);
  net.closing.clear();
  CHECK_THROWS(connections.close(), PluginError,
               "closeSend returned 2 (system error): to rank 1, lane 0, channel 0");
  CHECK_EQ(net.closing.size(), 3u);
}

TEST(set_up_times_are_kept_a_phase) {
  SlowNet net;
  net.comes_up = [](Call, int turn) { return turn >= 20; };
  Connections connections(net, 0);
  add_comms(connections, 1, 1);
  connections.establish(1.0);
  for (const auto& comm : connections.comms()) {
    CHECK_LT(int64_t{16 * 50'000}, comm->establish_ns);  // so many pauses at least
    CHECK_LE(int64_t{0}, comm->listen_ns);
  }
}

TEST(a_caller_is_asked_while_nothing_comes_up_and_may_end_the_wait) {
  SlowNet net;
  net.comes_up = [](Call call, int) { return call == Call::kConnect; };
  Connections connections(net, 0);
  add_comms(connections, 1, 2);
  const WaitHook stop = [&] { throw std::runtime_error(connections.describe_pending("are late")); };
  CHECK_THROWS(connections.establish(600, stop), std::runtime_error,
               "2 of 3 connections are late: from rank 1, lane 0, channel 0; from rank 1, lane 0");
}

TEST(a_call_that_has_not_returned_is_told_with_its_age) {
  SlowNet net;
  Connections connections(net, 0);
  std::vector<std::string> seen;
  net.comes_up = [&](Call call, int turn) {
    // As the adapter of a table does.
    return plugin_call::run(call == Call::kConnect ? "connect" : "accept", [&] {
      const auto found = plugin_call::oldest();  // another thread would ask
      if (turn == 1 && found && found->since_ns > 0 && found->since_ns <= now_ns()) {
        seen.push_back(found->what);
      }
      return true;
    });
  };
  add_comms(connections, 1, 1);
  CHECK(!plugin_call::oldest());
  connections.establish(1.0);
  CHECK_EQ(seen.size(), 2u);
  CHECK_EQ(seen[0], std::string("connect to rank 1, lane 0, channel 0"));
  CHECK_EQ(seen[1], std::string("accept from rank 1, lane 0, channel 0"));
  CHECK(!plugin_call::oldest());
}

TEST(an_exception_of_the_plugin_is_an_error_that_names_its_type) {
  const auto call = [] { return plugin_call::run("init", []() -> int { throw 42; }); };
  CHECK_THROWS(call(), PluginThrew, "plugin call init threw an exception of C++ (int)");
  const auto other = [] {
    return plugin_call::run("listen", []() -> int { throw std::runtime_error("no\x1b room"); });
  };
  CHECK_THROWS(other(), PluginThrew, "listen threw an exception of C++ (std::runtime_error: no");
  struct Speechless : std::exception {
    const char* what() const noexcept override { return nullptr; }
  };
  const auto third = [] { return plugin_call::run("regMr", []() -> int { throw Speechless(); }); };
  CHECK_THROWS(third(), PluginThrew, "Speechless: an exception without words)");
  CHECK(!plugin_call::oldest());
}

CHECK_MAIN()
