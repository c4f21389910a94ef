#include "engine/setup_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "engine/clock.h"
#include "engine/signals.h"

namespace tcpx::setup_watch {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);
// A process that was stopped finds on waking that it is late: whoever is to end it does so now.
constexpr int64_t kStoppedNs = 1'000'000'000;
constexpr int64_t kWakingNs = 2'000'000'000;
constexpr int kWriteMs = 1000;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  bool begun = false, over = false;
  Pace pace;
  int64_t began_ns = 0, limit_ns = 0, since_ns = 0, later_ns = 0;
  std::string name, what = "its own start";
  int table = -1, slot = 0;
};

// Never destroyed: the thread may wait for it while the process ends.
State& state() {
  static auto* made = new State;
  return *made;
}

int64_t ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

// Nobody may read what is written: the deadline holds all the same.
void say(const std::string& line, int descriptor = STDERR_FILENO) {
  pollfd ready{descriptor, POLLOUT, 0};
  if (poll(&ready, 1, kWriteMs) == 1 && (ready.revents & POLLOUT) != 0) {
    [[maybe_unused]] const ssize_t written = write(descriptor, line.data(), line.size());
  }
}

// Open MPI's mpirun hands on no line of ranks that it ends: as in run/last_words.py.
void say_last(const std::string& line) {
  const std::string parent = "/proc/" + std::to_string(getppid());
  const std::string theirs = parent + "/fd/2";
  char name[16] = {};
  if (const int comm = open((parent + "/comm").c_str(), O_RDONLY); comm >= 0) {
    if (read(comm, name, sizeof(name) - 1) < 0) name[0] = '\0';
    close(comm);
  }
  const bool is_mpirun = strcmp(name, "prterun\n") == 0 || strcmp(name, "mpirun\n") == 0;
  const bool sent = is_mpirun && stop_sender() == getppid();
  const int found = sent ? open(theirs.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK) : -1;
  say(line, found >= 0 ? found : STDERR_FILENO);
}

std::string seconds(int64_t duration_ns) {
  char text[32];
  snprintf(text, sizeof(text), "%.1f s", static_cast<double>(duration_ns) / 1e9);
  return text;
}

std::string limit_of(const State& s) {
  char text[64];
  snprintf(text, sizeof(text), "--setup-timeout (%g s)", static_cast<double>(s.limit_ns) / 1e9);
  return text;
}

std::string waiting(const State& s, int64_t now) {
  return "this rank waits for " + s.what + " since " + seconds(now - s.since_ns);
}

void record(const State& s, const std::string& text) {
  if (s.table < 0) return;
  char whole[kRecordBytes] = {};
  memcpy(whole, text.data(), std::min(text.size(), sizeof(whole) - 1));
  [[maybe_unused]] const ssize_t written =
      pwrite(s.table, whole, sizeof(whole), off_t{s.slot} * kRecordBytes);
}

void record_wait(const State& s) { record(s, std::to_string(s.since_ns) + " " + s.what); }

void watch() {
  ::pthread_setname_np(::pthread_self(), "tcpx-setup");
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  int64_t line_ns = s.began_ns + ns(s.pace.first_line_s);
  int64_t looked_ns = now_ns(), woke_ns = 0, signalled_ns = 0;
  while (true) {
    s.changed.wait_for(lock, kLook);
    if (s.over) return;
    const int64_t now = now_ns();
    if (now - looked_ns > kStoppedNs) woke_ns = now;
    looked_ns = now;
    if (const int number = stop_signal(); number != 0) {
      if (signalled_ns == 0) signalled_ns = now;
      if (now - signalled_ns > ns(s.pace.signal_grace_s)) {
        // A launcher that ends a job hands the signal to all ranks: one of them says so.
        if (s.slot == 0 || stop_sender() != getppid()) {
          say_last("tcpx-mpi: error: " + s.name + "interrupted by signal " +
                   std::to_string(number) + " in set-up: " + waiting(s, now) + "\n");
        }
        _exit(128 + number);
      }
    }
    if (now > std::max(s.began_ns + s.limit_ns + s.later_ns, woke_ns + kWakingNs)) {
      say("tcpx-mpi: error: " + s.name + "set-up did not end within " + limit_of(s) + ": " +
          waiting(s, now) + "\n");
      _exit(kExitCode);
    }
    if (now > line_ns) {
      line_ns += ns(s.pace.every_s);
      say("# " + s.name + "set-up goes on for " + seconds(now - s.began_ns) + " of " + limit_of(s) +
          ": " + waiting(s, now) + "\n");
    }
  }
}

}  // namespace

void begin(double limit_s, const Pace& pace) {
  State& s = state();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (s.begun) return;
    s.begun = true;
    s.pace = pace;
    s.began_ns = s.since_ns = now_ns();
    s.limit_ns = ns(limit_s);
  }
  install_signal_handlers();
  std::thread(watch).detach();
}

void set_name(const std::string& name, const std::string& table, int slot) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun || s.over) return;
  s.name = name + ": ";
  s.slot = slot;
  if (!table.empty()) s.table = open(table.c_str(), O_WRONLY | O_CLOEXEC);
  record_wait(s);
}

void set_limit(double limit_s) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.limit_ns = ns(limit_s);
}

void waits_for(const std::string& what, double later_s) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun || s.over) return;
  s.what = what;
  s.since_ns = now_ns();
  s.later_ns = ns(later_s);
  record_wait(s);
}

double left_s() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun || s.over) return std::numeric_limits<double>::infinity();
  return static_cast<double>(s.began_ns + s.limit_ns - now_ns()) / 1e9;
}

bool end() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun || s.over) return false;
  s.over = true;
  record(s, "over");
  if (s.table >= 0) close(s.table);
  s.table = -1;
  s.changed.notify_all();
  return true;
}

}  // namespace tcpx::setup_watch
