// What does not come up gives back its descriptors: over softtcpx, in a process that has few.
#include <dirent.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

#include "check.h"
#include "engine/clock.h"
#include "tcpx_p2p/session.h"

using namespace tcpx_p2p;

namespace {

constexpr int kRounds = 300;
constexpr int64_t kDeadlineNs = 20'000'000'000;

size_t descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // ".", "..", and the folder's own
}

// As a small process has it.
void have_few_descriptors() {
  const rlimit few{256, 256};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
}

// What nobody listens for is not asked for that long.
const int impatient = setenv("SOFTTCPX_CONNECT_TIMEOUT_MS", "300", 1);

Options options_of(Progress progress = Progress::kCaller) {
  Options options;
  options.plugin = SOFTTCPX_PLUGIN;
  options.progress = progress;
  return options;
}

// After a first session, which leaves the plugin behind.
size_t descriptors_before(Progress progress = Progress::kCaller) {
  { Session session(0, 2, options_of(progress)); }
  have_few_descriptors();
  return descriptors();
}

template <typename Condition>
bool comes(Session* session, const Condition& condition) {
  const int64_t deadline = tcpx::now_ns() + kDeadlineNs;
  while (!condition()) {
    if (tcpx::now_ns() > deadline) return false;
    if (session != nullptr) session->progress();
    sched_yield();
  }
  return true;
}

}  // namespace

TEST(a_remote_that_nobody_connected_to_gives_back_its_listeners) {
  for (const Progress progress : {Progress::kCaller, Progress::kThread}) {
    const size_t before = descriptors_before(progress);
    {
      Session session(0, 2, options_of(progress));
      for (int round = 0; round < kRounds; ++round) {
        session.listen("b");
        session.progress();
        session.close_remote("b");
      }
      CHECK(comes(&session, [&] { return descriptors() <= before + 1; }));
      // And with them open, at its end.
      session.listen("b");
      session.progress();
    }
    CHECK_EQ(descriptors(), before);
  }
}

TEST(a_remote_that_does_not_accept_gives_back_its_connects) {
  const size_t before = descriptors_before();
  {
    Session deaf(0, 2, options_of()), session(0, 2, options_of());
    for (int round = 0; round < 40; ++round) {
      const std::string name = std::to_string(round);
      session.load_remote_conn_info(name, deaf.listen(name));
      for (int i = 0; i < 5; ++i) session.progress();
      session.close_remote(name);
      deaf.close_remote(name);
    }
    CHECK(comes(&session, [&] { return descriptors() <= before + 2; }));
  }
  CHECK_EQ(descriptors(), before);
}

TEST(two_sides_of_which_one_ends_half_way_give_back_what_they_have) {
  const size_t before = descriptors_before();
  {
    Session session(0, 2, options_of());
    for (int round = 0; round < 40; ++round) {
      Session other(0, 2, options_of());
      session.load_remote_conn_info("other", other.listen("session"));
      other.load_remote_conn_info("session", session.listen("other"));
      for (int i = 0; i < round % 8; ++i) other.progress(), session.progress();
      other.close();
      session.close_remote("other");
    }
    CHECK(comes(&session, [&] { return descriptors() <= before + 1; }));
  }
  CHECK_EQ(descriptors(), before);
}

CHECK_MAIN()
