// A plugin may call exit(), TCPX does so in five places, and it may crash: the process, a
// notebook's too, would be gone without a word. Here it says who did that.
#pragma once

#include <pthread.h>

#include <memory>
#include <string>

namespace tcpx::exit_guard {

// Watches for exits and crashes by a library, which `symbol` is an address of. If one of its
// functions is among the callers of exit() or of what crashed, one line goes to stderr. The process
// ends at once with kExitInBatch or kExitElsewhere: nothing of ours may run within a plugin.
void watch(const void* symbol, const std::string& path);

// While it lives this thread loads a library, whose constructors may be as deadly.
class Loading {
 public:
  explicit Loading(const std::string& path);
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
};

// While it lives this thread's crashes are found out on a stack of their own: its usual one may be
// what is full. Nothing where the thread has one.
class CrashStack {
 public:
  CrashStack();
  ~CrashStack();
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

// The path of the plugin that a thread of this process is in, its constructors and destructors too;
// "" for none, and if the thread does not answer a signal in time.
std::string plugin_in(pthread_t thread);

// From now on nothing is watched: this process is a program of somebody else's, whose handlers of
// signals are its own.
void keep_out();

// Who this process is, for the line: "rank 3 on host1".
void set_name(const std::string& name);

// Is called with the exit code before a plugin's end or crash ends the process; in a handler of
// signals.
void on_end(void (*tell)(int exit_code));

constexpr int kExitElsewhere = 4;  // the exit codes of an error in set-up,
constexpr int kExitInBatch = 13;   // and of a plugin that fails while measuring

}  // namespace tcpx::exit_guard
