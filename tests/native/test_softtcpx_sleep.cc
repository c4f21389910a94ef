// When a worker of softtcpx sleeps, and what is asked in vain: what an owner asks of epoll and of
// sockets passes through this file.
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "fake_gpu.h"
#include "softtcpx/environment/log.h"
#include "softtcpx_receiver.h"

using namespace softtcpx;

namespace {

// What the worker does before it asks epoll, without waiting (0) or for so long; set before there
// is a worker.
std::function<void(int timeout_ms)> g_before_epoll;
// The same, before it reads from this socket.
std::atomic<int> g_watched_socket{-1};
std::function<void()> g_before_recv;
std::atomic<int> g_sleeps_timed_out{0};  // ended by the timer alone
std::atomic<int> g_warnings{0};
// What was looked at cannot be taken out of this socket.
std::atomic<int> g_stubborn_socket{-1};
std::atomic<int> g_refusals{0};
std::atomic<int> g_reads_in_vain{0};

// On the worker's thread: it has looked at every receive, and one is not done.
bool waits(const Receiver& receiver) {
  return receiver.comm().has_pending() && !receiver.comm().has_news();
}

int unread(int fd) {
  int bytes = -1;
  CHECK_EQ(::ioctl(fd, FIONREAD, &bytes), 0);
  return bytes;
}

void count_warnings(int level, unsigned long, const char*, int, const char*, ...) {
  g_warnings += level == kNetLogWarn;
}

}  // namespace

extern "C" {
int __real_epoll_wait(int fd, epoll_event* events, int most, int timeout_ms);
ssize_t __real_recv(int fd, void* bytes, size_t count, int flags);

int __wrap_epoll_wait(int fd, epoll_event* events, int most, int timeout_ms) {
  if (g_before_epoll) g_before_epoll(timeout_ms);
  const int count = __real_epoll_wait(fd, events, most, timeout_ms);
  g_sleeps_timed_out += timeout_ms > 0 && count == 0;
  return count;
}

ssize_t __wrap_recv(int fd, void* bytes, size_t count, int flags) {
  if (fd == g_watched_socket) g_before_recv();
  if (fd != g_stubborn_socket || (flags & MSG_TRUNC) == 0) {
    const ssize_t got = __real_recv(fd, bytes, count, flags);
    g_reads_in_vain += got < 0;
    return got;
  }
  ++g_refusals;
  errno = ECONNRESET;
  return -1;
}
}

TEST(no_sleep_over_what_the_look_of_another_connection_has_brought) {
  constexpr int kMessages = 16;
  const Settings settings = sleepy(/*direct_sockets=*/0);
  Device device(0, Interface{}, settings);
  std::atomic<Receiver*> here{nullptr}, other{nullptr};
  int sent = 0;
  g_before_epoll = [&](int timeout_ms) {
    if (here == nullptr || other == nullptr || sent == kMessages) return;
    const bool begins = sent == 0 && timeout_ms > 0 && waits(*here) && waits(*other);
    if (begins) g_sleeps_timed_out = 0;
    // Later ones by looks: what has just moved makes none, so they are those of the other
    // connection, after this one was found to have nothing.
    if (!begins && (sent == 0 || timeout_ms > 0)) return;
    here.load()->send(0);
    ++sent;
  };
  Receiver one(device, 1, 1), another(device, 1, 1);
  here = &one;
  other = &another;
  for (int i = 0; i < kMessages; ++i) CHECK_EQ(one.post(), int{kNetSuccess});
  CHECK_EQ(another.post(), int{kNetSuccess});
  CHECK(until([&] { return one.test() && one.done() == kMessages; }));
  CHECK_EQ(g_sleeps_timed_out.load(), 0);
}

TEST(bytes_that_are_held_keep_no_worker_awake_when_nothing_is_posted) {
  const Settings settings = sleepy(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  std::atomic<const Receiver*> watched{nullptr};
  std::atomic<bool> sent{false};
  std::atomic<int> waiting{0}, idle{0};
  g_before_epoll = [&](int timeout_ms) {
    if (timeout_ms == 0 || watched == nullptr) return;
    waiting += waits(*watched);
    idle += sent && !watched.load()->comm().has_pending();
  };
  Receiver receiver(device, 1, 1);
  watched = &receiver;
  CHECK_EQ(receiver.post(), int{kNetSuccess});
  CHECK(until([&] { return waiting > 0; }));
  sent = true;
  receiver.send(0);
  CHECK(until([&] { return receiver.test(); }));
  CHECK_EQ(unread(receiver.data_socket(0)), static_cast<int>(Receiver::kOnTheWire));
  CHECK(until([&] { return idle > 0; }));
}

TEST(what_is_posted_and_done_within_one_look_keeps_no_worker_awake) {
  const Settings settings = sleepy(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  std::atomic<bool> reads{false}, posted{false}, over{false};
  std::atomic<int> idle{0};
  g_before_epoll = [&](int timeout_ms) { idle += over && timeout_ms > 0; };
  g_before_recv = [&] {
    reads = true;
    CHECK(until([&] { return posted.load(); }));
  };
  Receiver receiver(device, 1, 1);
  g_watched_socket = receiver.data_socket(0);
  for (int i = 0; i < 2; ++i) receiver.send(0);
  CHECK_EQ(receiver.post(), int{kNetSuccess});
  CHECK(until([&] { return reads.load(); }));
  CHECK_EQ(receiver.post(), int{kNetSuccess});
  posted = true;
  CHECK(until([&] { return receiver.test() && receiver.done() == 2; }));
  CHECK(!receiver.comm().has_pending());
  over = true;
  CHECK(until([&] { return idle > 0; }));
}

TEST(bytes_that_cannot_be_let_go_keep_no_worker_awake) {
  const Settings settings = sleepy(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  set_logger(count_warnings);
  std::atomic<Receiver*> watched{nullptr};
  int sent = 0, warnings = -1;
  g_before_epoll = [&](int timeout_ms) {
    if (timeout_ms == 0 || watched == nullptr || !waits(*watched)) return;
    if (sent == 0) {
      watched.load()->send(0);
      ++sent;
    }
    if (sent == 1 && g_refusals > 0) {
      // A lost socket ends the connection, with a warning, once the others were silent for 1 s.
      warnings = g_warnings;
      watched.load()->send(1);
      ++sent;
    }
  };
  Receiver receiver(device, 2, 1);
  g_stubborn_socket = receiver.data_socket(0);
  watched = &receiver;
  for (int i = 0; i < 2; ++i) CHECK_EQ(receiver.post(), int{kNetSuccess});
  CHECK(until([&] { return receiver.test() && receiver.done() == 2; }));
  CHECK_EQ(warnings, 0);
  CHECK_EQ(g_refusals.load(), 1);
}

TEST(the_end_of_another_connection_costs_one_look) {
  const Settings settings = sleepy(/*direct_sockets=*/0);
  Device device(0, Interface{}, settings);
  CHECK(device.poller.open());
  ReadyCell* const cell = take_cell();
  return_cell(cell);
  Receiver receiver(device, 1, 0);
  // Heard for the connection that had the cell before, and noted late.
  cell->events |= uint64_t{1} | uint64_t{1} << ReadyCell::kHangUpShift;
  CHECK_EQ(receiver.post(), int{kNetSuccess});
  CHECK(!receiver.test());
  for (int i = 0; i < 3; ++i) {
    receiver.send(0);
    CHECK(until([&] { return receiver.test(); }));
    CHECK_EQ(receiver.post(), int{kNetSuccess});
    g_reads_in_vain = 0;
    CHECK(!receiver.test());
    CHECK_EQ(g_reads_in_vain.load(), 0);
  }
}

// Two messages wait for pages. The caller gives some back while the worker is between the two, and
// they suffice for one.
TEST(a_message_that_still_waits_for_pages_is_heard_when_more_come_back) {
  test_gpu();
  Settings settings = sleepy(/*direct_sockets=*/4);
  settings.chunk_bytes = 4096;
  settings.bounce_pages = 3;  // a receive of one page may need two
  Device device(0, Interface{}, settings);
  std::atomic<Receiver*> watched{nullptr};
  std::atomic<bool> sent{false}, reads{false}, asleep{false};
  std::atomic<int> consumed{0}, looked{0};
  bool begun = false;
  g_before_epoll = [&](int timeout_ms) {
    if (timeout_ms == 0 || watched == nullptr) return;
    if (consumed == 0 && sent) {
      if (!begun) {
        watched.load()->send(2);  // message 1
        watched.load()->send(0);  // message 2
        begun = true;
      } else if (waits(*watched)) {
        ++looked;  // at both
      }
    }
    if (consumed == 1 && !asleep) {
      asleep = true;
      CHECK(until([&] { return consumed == 2; }));
      g_sleeps_timed_out = 0;
    }
  };
  g_before_recv = [&] {  // sockets are tried in order
    if (looked == 0 || reads) return;
    reads = true;
    CHECK(until([&] { return consumed == 1; }));
  };
  Receiver receiver(device, 3, 1);
  watched = &receiver;
  g_watched_socket = receiver.data_socket(1);
  for (int i = 0; i < 3; ++i) CHECK_EQ(receiver.post(Memory::kGpu), int{kNetSuccess});
  receiver.send(2);  // message 0
  CHECK(until([&] { return receiver.test(); }));
  sent = true;
  CHECK(until([&] { return reads.load(); }));
  receiver.consume();
  consumed = 1;
  CHECK(until([&] { return receiver.test() && receiver.done() == 2; }));
  CHECK(until([&] { return asleep.load(); }));
  receiver.consume();
  consumed = 2;
  CHECK(until([&] { return receiver.test(); }));
  CHECK_EQ(g_sleeps_timed_out.load(), 0);
  receiver.consume();
  g_watched_socket = -1;
}

// As above, and what comes back suffices for both.
TEST(a_message_that_got_its_pages_by_another_ones_look_is_looked_at) {
  test_gpu();
  Settings settings = sleepy(/*direct_sockets=*/4);
  settings.chunk_bytes = 4096;
  settings.bounce_pages = 5;
  Device device(0, Interface{}, settings);
  std::atomic<Receiver*> watched{nullptr};
  std::atomic<bool> sent{false}, reads{false};
  std::atomic<int> consumed{0}, looked{0};
  bool begun = false;
  g_before_epoll = [&](int timeout_ms) {
    if (timeout_ms == 0 || watched == nullptr || consumed > 0 || !sent) return;
    if (!begun) {
      watched.load()->send(2);  // message 2
      watched.load()->send(0);  // message 3
      begun = true;
    } else if (waits(*watched)) {
      ++looked;  // at both
    }
  };
  g_before_recv = [&] {
    if (looked == 0 || reads) return;
    reads = true;
    CHECK(until([&] { return consumed == 2; }));
    g_sleeps_timed_out = 0;
  };
  Receiver receiver(device, 3, 1);
  watched = &receiver;
  g_watched_socket = receiver.data_socket(1);
  for (int i = 0; i < 4; ++i) CHECK_EQ(receiver.post(Memory::kGpu), int{kNetSuccess});
  for (int i = 0; i < 2; ++i) receiver.send(2);  // messages 0 and 1
  CHECK(until([&] { return receiver.test() && receiver.done() == 2; }));
  sent = true;
  CHECK(until([&] { return reads.load(); }));
  receiver.consume();
  receiver.consume();
  consumed = 2;
  CHECK(until([&] { return receiver.test() && receiver.done() == 4; }));
  CHECK_EQ(g_sleeps_timed_out.load(), 0);
  receiver.consume();
  receiver.consume();
  g_watched_socket = -1;
}

TEST(a_small_message_is_moved_by_its_caller_while_the_worker_sleeps) {
  constexpr int kMessages = 100;
  const Presence presence;
  const Settings settings = shared_with_caller(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings, &presence);
  std::atomic<std::thread::id> mover;
  g_before_recv = [&] { mover = std::this_thread::get_id(); };
  Receiver receiver(device, 1, 1);
  g_watched_socket = receiver.data_socket(0);
  const auto moved_here = [&] {
    CHECK_EQ(receiver.post(), int{kNetSuccess});
    receiver.send(0);
    CHECK(until([&] { return receiver.test(); }));
    receiver.consume();
    return mover.load() == std::this_thread::get_id();
  };
  CHECK(until(moved_here));  // the worker has gone to sleep
  int here = 0;
  for (int i = 0; i < kMessages; ++i) here += moved_here();
  CHECK(here > kMessages / 2);  // it looks around now and then
  g_watched_socket = -1;
}

TEST(of_large_messages_the_second_wakes_a_worker) {
  const Presence presence;
  const Settings settings = shared_with_caller(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings, &presence);
  for (int i = 0; i < 3; ++i) {  // the count of those that are pending ends with a connection, too
    Receiver first(device, 1, 2), second(device, 1, 2);
    CHECK_EQ(first.post(Memory::kHost, Receiver::kLarge), int{kNetSuccess});
    CHECK(!first.comm().wants_worker());
    CHECK_EQ(second.post(Memory::kHost, Receiver::kLarge), int{kNetSuccess});
    CHECK(second.comm().wants_worker());
    second.send(0);
    CHECK(until([&] { return !second.comm().has_pending(); }));  // nobody tests it
    CHECK(second.test());
    second.consume();
    CHECK_EQ(second.post(), int{kNetSuccess});
    CHECK(!second.comm().wants_worker());
    if (i > 0) continue;  // closed with requests
    first.send(0);
    second.send(0);
    CHECK(until([&] { return first.test(); }));
    CHECK(until([&] { return second.test(); }));
    first.consume();
    second.consume();
  }
}

// The look of a caller takes what epoll has for the worker that sleeps over it.
TEST(no_worker_sleeps_over_what_a_caller_has_heard) {
  const Presence presence;
  const Settings settings = shared_with_caller(/*direct_sockets=*/0);
  Device device(0, Interface{}, settings, &presence);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<Receiver*> workers{nullptr};
  std::atomic<int> looks{0};  // of the caller, since the worker is about to sleep
  std::atomic<bool> sleeps{false};
  g_before_epoll = [&](int timeout_ms) {
    if (workers == nullptr) return;
    if (timeout_ms == 0) {
      if (std::this_thread::get_id() != caller || !sleeps) return;
      if (looks == 0) workers.load()->send(0);
      ++looks;
    } else if (!sleeps && waits(*workers)) {
      sleeps = true;
      CHECK(until([&] { return looks > 1; }));
      g_sleeps_timed_out = 0;
    }
  };
  Receiver first(device, 1, 1), second(device, 1, 1), small(device, 1, 1);
  CHECK_EQ(first.post(Memory::kHost, Receiver::kLarge), int{kNetSuccess});
  CHECK_EQ(second.post(Memory::kHost, Receiver::kLarge), int{kNetSuccess});
  CHECK_EQ(small.post(), int{kNetSuccess});
  workers = &second;
  CHECK(until([&] {
    CHECK(!small.test());
    return !second.comm().has_pending();
  }));
  CHECK_EQ(g_sleeps_timed_out.load(), 0);
  workers = nullptr;
}

CHECK_MAIN()
