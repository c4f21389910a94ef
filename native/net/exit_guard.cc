#include "net/exit_guard.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <vector>

#include "net/log_printer.h"
#include "net/logger.h"
#include "net/plugin_call.h"

namespace tcpx::exit_guard {
namespace {

constexpr int kFrames = 64;
constexpr int kAnswerMs = 200;
constexpr size_t kCrashStackBytes = 64 << 10;

struct Watched {
  void* base;
  std::string path;
};

std::mutex g_mutex;
// These are never destroyed: what crashes as the process ends may come behind all destructors.
std::vector<Watched>& g_watched = *new std::vector<Watched>;
Watched& g_loaded = *new Watched;  // has a path while `g_loads` loads it
pthread_t g_loads;
bool g_armed = false, g_keeps_out = false;
CrashStack* volatile g_crash_stack = nullptr;  // nobody reads it: it is kept for a look for leaks
std::atomic<void (*)(int)> g_tell{nullptr};
std::atomic<pid_t> g_process{0};         // that uses plugins
std::string& g_name = *new std::string;  // "rank 3 on host1: "

void* base_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

// The plugin among the callers of this function, or nullptr. With g_mutex held.
const Watched* calling_plugin() {
  if (!g_loaded.path.empty() && pthread_equal(g_loads, pthread_self())) return &g_loaded;
  void* frames[kFrames];
  const int count = backtrace(frames, kFrames);
  for (int i = 0; i < count; ++i) {
    const void* base = base_of(frames[i]);
    for (const Watched& plugin : g_watched) {
      if (base != nullptr && plugin.base == base) return &plugin;
    }
  }
  // One that only passes its calls on may have jumped into the plugin behind it.
  return plugin_call::current() != nullptr && g_watched.size() == 1 ? g_watched.data() : nullptr;
}

// Where it was: in a batch, in a call of set-up or of closing, or in a thread of its own.
struct Where {
  const bool in_batch = plugin_log::quiet();
  const char* call = in_batch ? nullptr : plugin_call::current();
  const char* before = in_batch ? ", in a batch" : call != nullptr ? " in " : "";
  const char* name = call != nullptr ? call : "";
  int exit_code() const { return in_batch ? kExitInBatch : kExitElsewhere; }
};

[[noreturn]] void leave(int exit_code) {
  if (const auto tell = g_tell.load()) tell(exit_code);
  _exit(exit_code);
}

// A child that a plugin has forked has all of this, too, but does not speak for its parent. It may
// have forked while another thread held the mutex.
bool is_child() { return getpid() != g_process.load(); }

// On the stack of whoever called exit().
void at_exit(int status, void*) {
  if (is_child()) return;
  const std::lock_guard<std::mutex> lock(g_mutex);
  const Watched* plugin = calling_plugin();
  if (plugin == nullptr) return;
  const Where where;
  plugin_log::end_printing();
  dprintf(STDERR_FILENO,
          "tcpx-mpi: error: %sthe plugin %s has ended this process by exit(%d)%s%s%s\n",
          g_name.c_str(), plugin->path.c_str(), status, where.before, where.name,
          plugin_log::quote_end().c_str());
  leave(where.exit_code());
}

struct Crash {
  int number;
  const char* name;
  struct sigaction before;
};
Crash g_crashes[] = {{SIGSEGV, "SIGSEGV", {}},
                     {SIGBUS, "SIGBUS", {}},
                     {SIGABRT, "SIGABRT", {}},
                     {SIGILL, "SIGILL", {}},
                     {SIGFPE, "SIGFPE", {}}};

// On the crash stack of the thread, else its own; nothing is allocated, as it may have crashed in
// the allocator. Where no plugin is in it, the signal comes again, to whom it came before.
void on_crash(int number) {
  for (Crash& crash : g_crashes) {
    if (crash.number != number) continue;
    const std::unique_lock<std::mutex> lock(g_mutex, std::try_to_lock);
    const Watched* plugin = lock.owns_lock() && !is_child() ? calling_plugin() : nullptr;
    if (plugin != nullptr) {
      const Where where;
      dprintf(STDERR_FILENO, "tcpx-mpi: error: %sthe plugin %s has crashed by %s%s%s\n",
              g_name.c_str(), plugin->path.c_str(), crash.name, where.before, where.name);
      leave(where.exit_code());
    }
    sigaction(number, &crash.before, nullptr);
    raise(number);
  }
}

std::terminate_handler g_terminate_before = nullptr;

// An exception that nobody catches: on the stack of who threw it.
[[noreturn]] void on_terminate() {
  if (!is_child()) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    const Watched* plugin = calling_plugin();
    if (plugin != nullptr && std::current_exception()) {
      const Where where;
      plugin_log::end_printing();
      dprintf(STDERR_FILENO,
              "tcpx-mpi: error: %sthe plugin %s has crashed by an exception of C++ (%s)%s%s%s\n",
              g_name.c_str(), plugin->path.c_str(), plugin_call::thrown().c_str(), where.before,
              where.name, plugin_log::quote_end().c_str());
      leave(where.exit_code());
    }
  }
  if (g_terminate_before != nullptr) g_terminate_before();
  abort();
}

// SIGURG, which is nobody's death: a thread that is asked for says which plugin it is in.
std::atomic<bool> g_answered{false};
std::atomic<const Watched*> g_answer{nullptr};

void on_question(int) {
  const int before = errno;
  const std::unique_lock<std::mutex> lock(g_mutex, std::try_to_lock);
  g_answer.store(lock.owns_lock() ? calling_plugin() : nullptr);
  g_answered.store(true);
  errno = before;
}

void watch_crashes() {
  g_terminate_before = std::set_terminate(on_terminate);
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (Crash& crash : g_crashes) sigaction(crash.number, &action, &crash.before);
}

// With g_mutex held.
void arm() {
  g_process.store(getpid());  // a fork of ours that loads plugins itself
  if (g_armed) return;
  g_armed = true;
  void* frame;
  backtrace(&frame, 1);  // what it needs is loaded now: not in a process that ends
  on_exit(at_exit, nullptr);
  g_crash_stack = new CrashStack;  // of this thread, for as long as it lives
  watch_crashes();
}

}  // namespace

void watch(const void* symbol, const std::string& path) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_keeps_out) return;
  arm();
  g_watched.push_back({base_of(symbol), path});
}

CrashStack::CrashStack() {
  stack_t own{};
  if (sigaltstack(nullptr, &own) != 0 || (own.ss_flags & SS_DISABLE) == 0) return;
  memory_.reset(new char[kCrashStackBytes]);
  own.ss_sp = memory_.get();
  own.ss_size = kCrashStackBytes;
  own.ss_flags = 0;
  sigaltstack(&own, nullptr);
}

CrashStack::~CrashStack() {
  if (memory_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

Loading::Loading(const std::string& path) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_keeps_out) return;
  arm();
  g_loads = pthread_self();
  g_loaded.path = path;
}

Loading::~Loading() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_loaded.path.clear();
}

std::string plugin_in(pthread_t thread) {
  g_answered.store(false);
  struct sigaction asking {};
  asking.sa_handler = on_question;
  asking.sa_flags = SA_ONSTACK | SA_RESTART;
  struct sigaction before {};
  sigaction(SIGURG, &asking, &before);
  const bool asked = pthread_kill(thread, SIGURG) == 0;
  // Its handler may neither lock nor wake anybody: who asks looks.
  for (int ms = 0; asked && ms < kAnswerMs && !g_answered.load(); ++ms) usleep(1000);
  sigaction(SIGURG, &before, nullptr);
  const Watched* plugin = g_answered.load() ? g_answer.load() : nullptr;
  return plugin != nullptr ? plugin->path : "";
}

void keep_out() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_keeps_out = true;
}

void on_end(void (*tell)(int exit_code)) { g_tell.store(tell); }

void set_name(const std::string& name) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_name = name + ": ";
}

}  // namespace tcpx::exit_guard
