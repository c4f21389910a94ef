#include "engine/watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/clock.h"
#include "engine/last_words.h"
#include "engine/signals.h"
#include "net/exit_guard.h"
#include "net/logger.h"
#include "net/plugin_call.h"

namespace tcpx::watch {
namespace {

constexpr int kSetUpCode = 4;  // of an error in set-up
constexpr auto kLook = std::chrono::milliseconds(50);
// Who looks so late has not run meanwhile: whoever is to end this process does so now.
constexpr int64_t kStoppedNs = 1'000'000'000;
constexpr int64_t kWakingNs = 2'000'000'000;
constexpr double kLaterGrace = 20;
// Open MPI's mpirun kills its ranks so soon after SIGTERM. Rank 0 has spoken by then: a look finds
// the signal, another one that the grace is over. Others stay until it has looked who is there.
constexpr auto kKilledByMpirun = std::chrono::milliseconds(250);
constexpr double kGraceOfOthers = 2;
static_assert(std::chrono::duration<double>(Pace{}.signal_grace_s) + 2 * kLook < kKilledByMpirun);
constexpr char kTold[] = "told";  // as in launch/setup_table.py

enum class Phase { kSetUp, kCalls, kEnd };

struct Stop {
  int64_t from_ns, to_ns;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;     // what is waited for, or the age of a call
  bool begun = false, guards = false;  // the latter: beside sessions alone
  Pace pace;
  Phase phase = Phase::kSetUp;
  std::string option = "--setup-timeout";
  int exit_code = kSetUpCode;
  int64_t began_ns = 0, limit_ns = 0, later_ns = 0;  // of the phase; a limit of 0: none
  pthread_t ender{};                                 // in the end, the thread that ends the process
  int64_t lead_ns = 0;                               // of who can tell others of a late call
  int64_t since_ns = 0;
  std::string name, what = "its own start";
  int table = -1, slot = 0;
  std::optional<plugin_call::UnderWay> call;  // one that takes long
  int awaiting = 0;                           // threads that would tell all ranks of it
  std::vector<std::pair<const Heartbeat*, const char*>> loops;
  // Of the thread.
  int64_t line_ns = 0, signalled_ns = 0, woke_ns = 0;
};

std::mutex g_stops_mutex;  // never held while the other one is waited for
std::array<Stop, 16> g_stops{};
size_t g_stops_count = 0;
std::atomic<int64_t> g_looked_ns{0}, g_stopped_ns{0};
// Where a handler of signals writes its record.
std::atomic<int> g_table{-1}, g_slot{0};
std::atomic<bool> g_ends_well{false};

// Never destroyed: the thread may wait for it while the process ends.
State& state() {
  static auto* made = new State;
  return *made;
}

int64_t ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

std::string seconds(int64_t duration_ns) {
  char text[32];
  snprintf(text, sizeof(text), "%.1f s", static_cast<double>(duration_ns) / 1e9);
  return text;
}

std::string limit_of(const State& s) {
  char text[64];
  snprintf(text, sizeof(text), "%s (%g s)", s.option.c_str(),
           static_cast<double>(s.limit_ns) / 1e9);
  return text;
}

std::string waiting(const State& s) {
  if (s.call && s.phase != Phase::kSetUp) {
    return "plugin call " + s.call->what + " has not returned for " +
           seconds(running_since(s.call->since_ns));
  }
  return "this rank waits for " + s.what + " since " + seconds(running_since(s.since_ns));
}

// Of set-up as a whole, or of the call.
int64_t age_of(const State& s) {
  return running_since(s.phase == Phase::kSetUp ? s.began_ns : s.call->since_ns);
}

std::string late(const State& s) {
  if (s.phase != Phase::kSetUp) return waiting(s) + ": longer than " + limit_of(s);
  return "set-up did not end within " + limit_of(s) + ": " + waiting(s);
}

void write_record(int table, int slot, const char (&whole)[kRecordBytes]) {
  [[maybe_unused]] const ssize_t written =
      pwrite(table, whole, sizeof(whole), off_t{slot} * kRecordBytes);
}

void record(const State& s, const std::string& text) {
  if (s.table < 0) return;
  char whole[kRecordBytes] = {};
  memcpy(whole, text.data(), std::min(text.size(), sizeof(whole) - 1));
  write_record(s.table, s.slot, whole);
}

// In a handler of signals, whoever holds the mutex.
void record_end_now(int exit_code) {
  char whole[kRecordBytes] = {};
  snprintf(whole, sizeof(whole), "ended %d", exit_code);
  write_record(g_table.load(), g_slot.load(), whole);
}

// An mpirun that was told to stop hands this on, hands on nothing that is printed any more, and may
// kill this process within milliseconds.
void record_stop(int number) {
  char whole[kRecordBytes] = {};
  snprintf(whole, sizeof(whole), "ended 0, signal %d", number);
  if (g_ends_well.load()) write_record(g_table.load(), g_slot.load(), whole);
}

// Whether the launcher has said, or will, why set-up does not end.
bool launcher_reports(const State& s) {
  char found[sizeof(kTold) - 1] = {};
  const off_t at = off_t{s.slot} * kRecordBytes;
  return s.table >= 0 && s.phase == Phase::kSetUp &&
         pread(s.table, found, sizeof(found), at) == ssize_t{sizeof(found)} &&
         memcmp(found, kTold, sizeof(found)) == 0;
}

void record_wait(const State& s) {
  if (s.phase == Phase::kSetUp) record(s, std::to_string(s.since_ns) + " " + s.what);
}

void record_end(const State& s, int exit_code) { record(s, "ended " + std::to_string(exit_code)); }

[[noreturn]] void leave(const State& s, const std::string& text, int exit_code) {
  if (!launcher_reports(s)) say("tcpx-mpi: error: " + s.name + text + "\n");
  record_end(s, exit_code);
  _exit(exit_code);
}

// --- What a look of the thread finds, with the state's mutex held

void note_stop(State& s, int64_t before, int64_t now) {
  if (now - before <= kStoppedNs) return;
  const std::lock_guard<std::mutex> lock(g_stops_mutex);
  g_stops[g_stops_count++ % g_stops.size()] = {before, now};
  g_stopped_ns.fetch_add(now - before, std::memory_order_relaxed);
  s.woke_ns = now;
}

void heed_signal(State& s, int64_t now) {
  const int number = stop_signal();
  if (number == 0) return;
  if (s.signalled_ns == 0) s.signalled_ns = now;
  // An end in good order that a signal has begun has its own limit; one that hangs was told now.
  if (s.phase == Phase::kEnd && s.signalled_ns <= s.began_ns) return;
  if (s.phase == Phase::kEnd && s.exit_code == 0) s.exit_code = 128 + number;
  const double in_set_up = s.slot == 0 ? 1 : kGraceOfOthers;
  const double grace_s =
      s.pace.signal_grace_s * (s.phase == Phase::kSetUp ? in_set_up : kLaterGrace);
  if (now - s.signalled_ns <= ns(grace_s)) return;
  if (s.phase == Phase::kEnd) _exit(s.exit_code);
  // A launcher that ends a job hands the signal to all ranks: one of them says so.
  if (s.slot == 0 || stop_sender() != getppid()) {
    const std::string where = s.phase == Phase::kSetUp ? " in set-up: " : ": ";
    const std::string line = "tcpx-mpi: error: " + s.name + "interrupted by signal " +
                             std::to_string(number) + where + waiting(s) + "\n";
    if (stop_sender() != getppid() || !say_to_mpirun(line)) say(line);
  }
  record_end(s, 128 + number);
  _exit(128 + number);
}

void find_long_call(State& s) {
  s.call = plugin_call::oldest();
  if (s.call && running_since(s.call->since_ns) <= ns(kLongCallS)) s.call.reset();
  if (s.call) s.changed.notify_all();
}

void keep_set_up(State& s, int64_t now) {
  find_long_call(s);
  if (s.limit_ns == 0) return;
  const int64_t age = age_of(s);
  const int64_t lead = s.call && s.awaiting > 0 ? ns(kLeadS) : 0;
  if (age > s.limit_ns + s.later_ns + lead && now > s.woke_ns + kWakingNs) {
    leave(s, late(s) + plugin_log::quote_since(s.since_ns), s.exit_code);
  }
  if (now > s.line_ns) {
    s.line_ns += ns(s.pace.every_s);
    say("# " + s.name + "set-up goes on for " + seconds(age) + " of " + limit_of(s) + ": " +
        waiting(s) + "\n");
  }
}

void keep_calls(State& s) {
  find_long_call(s);
  if (s.limit_ns == 0) return;
  const int64_t limit = s.limit_ns + s.lead_ns;
  if (s.call && age_of(s) > limit) {
    leave(s, late(s) + plugin_log::quote_since(s.call->since_ns), s.exit_code);
  }
  for (const auto& [loop, where] : s.loops) {
    const int64_t looked = loop->looked_ns.load(std::memory_order_relaxed);
    if (looked == 0 || running_since(looked) <= limit) continue;
    leave(s,
          std::string("plugin call ") + call_name(loop->call()) + " " + where +
              " has not returned for " + seconds(running_since(looked)) + ": longer than " +
              limit_of(s) + plugin_log::quote_since(looked),
          s.exit_code);
  }
}

void keep_end(State& s) {
  const int64_t age = running_since(s.began_ns);
  if (s.limit_ns == 0 || age <= s.limit_ns) return;
  const std::string plugin = exit_guard::plugin_in(s.ender);
  const std::string held = "it is held by the plugin " + plugin;
  if (s.guards && plugin.empty()) {
    s.began_ns = now_ns();  // the program's own affair: the plugin may be next
    return;
  }
  if (s.guards)
    leave(s, "this process did not end within " + limit_of(s) + ": " + held, s.exit_code);
  say("# " + s.name + "its end took longer than " + seconds(age) + ": " +
      (plugin.empty() ? waiting(s) : held) + "; it ends without\n");
  record_end(s, s.exit_code);
  _exit(s.exit_code);
}

void watch() {
  ::pthread_setname_np(::pthread_self(), "tcpx-watch");
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  // Since it was begun: the process may be stopped before this thread runs for the first time.
  int64_t looked = g_looked_ns.load(std::memory_order_relaxed);
  while (true) {
    lock.unlock();
    std::this_thread::sleep_for(kLook);
    lock.lock();
    const int64_t now = now_ns();
    note_stop(s, looked, now);
    looked = now;
    g_looked_ns.store(now, std::memory_order_relaxed);
    heed_signal(s, now);
    if (s.phase == Phase::kSetUp) keep_set_up(s, now);
    if (s.phase == Phase::kCalls) keep_calls(s);
    if (s.phase == Phase::kEnd) keep_end(s);
  }
}

void enter(State& s, Phase phase, double limit_s, int exit_code) {
  s.phase = phase;
  s.exit_code = exit_code;
  s.began_ns = now_ns();
  s.limit_ns = ns(limit_s);
}

}  // namespace

const char* call_name(InCall call) {
  switch (call) {
    case InCall::kPost:
      return "isend or irecv";
    case InCall::kConsumed:
      return "irecvConsumed";
    case InCall::kFlush:
      return "iflush";
    case InCall::kTestFlush:
      return "test of iflush";
    default:
      return "test";
  }
}

void begin(double limit_s, const Pace& pace) {
  State& s = state();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (s.begun) return;
    s.begun = true;
    s.ender = pthread_self();
    s.pace = pace;
    s.since_ns = now_ns();
    enter(s, Phase::kSetUp, limit_s, kSetUpCode);
    s.line_ns = s.began_ns + ns(pace.first_line_s);
  }
  install_signal_handlers(record_stop);
  g_looked_ns.store(now_ns(), std::memory_order_relaxed);
  std::thread(watch).detach();
}

void guard(const std::string& option, double limit_s, int exit_code) {
  State& s = state();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (s.begun && !s.guards) return;
    enter(s, Phase::kCalls, limit_s, exit_code);
    s.option = option;
    if (s.begun) return;
    s.begun = s.guards = true;
  }
  g_looked_ns.store(now_ns(), std::memory_order_relaxed);
  // Not while the thread has it: a forked child goes on to use it.
  pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                 [] {
                   state().mutex.unlock();
                   g_looked_ns.store(0, std::memory_order_relaxed);  // nobody looks there
                 });
  std::thread(watch).detach();
}

void guard_end() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.guards || s.phase == Phase::kEnd) return;
  s.phase = Phase::kEnd;
  s.began_ns = now_ns();
  s.ender = pthread_self();
}

void set_name(const std::string& name, const std::string& table, int slot) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun) return;
  s.name = name + ": ";
  s.slot = slot;
  if (!table.empty()) s.table = open(table.c_str(), O_RDWR | O_CLOEXEC);
  if (s.table >= 0) {
    g_slot.store(slot);
    g_table.store(s.table);
    exit_guard::on_end(record_end_now);
  }
  record_wait(s);
}

void set_limit(double limit_s) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (s.phase == Phase::kSetUp) s.limit_ns = ns(limit_s);
}

void waits_for(const std::string& what, double later_s) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun) return;
  s.what = what;
  s.since_ns = now_ns();
  s.later_ns = ns(later_s);
  record_wait(s);
}

double left_s() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun || s.phase != Phase::kSetUp) return std::numeric_limits<double>::infinity();
  return static_cast<double>(s.limit_ns - running_since(s.began_ns)) / 1e9;
}

void enter(const std::string& option, double limit_s, int exit_code) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun || s.phase == Phase::kEnd) return;
  enter(s, Phase::kCalls, limit_s, exit_code);
  s.option = option;
  s.lead_ns = ns(kLeadS);
  record(s, "over " + option);
}

void ending(int exit_code) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.begun) return;
  // The signal that begins an end has come before it, whether the thread has looked or not.
  if (s.signalled_ns == 0 && stop_signal() != 0) s.signalled_ns = now_ns();
  if (s.phase != Phase::kEnd) enter(s, Phase::kEnd, kEndS, exit_code);
  s.exit_code = exit_code;
  record_end(s, exit_code);
  g_ends_well.store(exit_code == 0);
  if (const int number = stop_signal(); number != 0) record_stop(number);
}

std::optional<LongCall> await(double seconds) {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  ++s.awaiting;
  s.changed.wait_for(lock, std::chrono::duration<double>(seconds));
  --s.awaiting;
  if (s.phase == Phase::kEnd || !s.call) return std::nullopt;
  const bool is_late = s.limit_ns != 0 && age_of(s) > s.limit_ns;
  const double age_s = static_cast<double>(running_since(s.call->since_ns)) / 1e9;
  return LongCall{is_late ? late(s) : waiting(s), age_s, is_late};
}

int64_t running_since(int64_t since_ns) {
  const int64_t now = now_ns();
  const int64_t looked = g_looked_ns.load(std::memory_order_relaxed);
  int64_t age = now - since_ns;
  // Who wakes first may come here before the watch has seen that all were stopped.
  if (looked != 0 && now - looked > kStoppedNs) age -= now - std::max(looked, since_ns);
  const std::lock_guard<std::mutex> lock(g_stops_mutex);
  for (size_t i = 0; i < std::min(g_stops_count, g_stops.size()); ++i) {
    age -= std::max<int64_t>(g_stops[i].to_ns - std::max(g_stops[i].from_ns, since_ns), 0);
  }
  return age;
}

int64_t running_ns() {
  const int64_t looked = g_looked_ns.load(std::memory_order_relaxed), now = now_ns();
  const int64_t unseen = looked != 0 && now - looked > kStoppedNs ? now - looked : 0;
  return now - stopped_ns() - unseen;
}

int64_t stopped_ns() { return g_stopped_ns.load(std::memory_order_relaxed); }

Round::Round(Heartbeat& heartbeat) : heartbeat_(heartbeat) {
  if (g_looked_ns.load(std::memory_order_relaxed) == 0) return;
  heartbeat.looked_ns.store(now_ns(), std::memory_order_relaxed);
}

Watched::Watched(const Heartbeat& heartbeat, const char* where) : heartbeat_(heartbeat) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.loops.emplace_back(&heartbeat, where);
}

Watched::~Watched() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.loops.erase(std::remove_if(s.loops.begin(), s.loops.end(),
                               [&](const auto& loop) { return loop.first == &heartbeat_; }),
                s.loops.end());
}

}  // namespace tcpx::watch
