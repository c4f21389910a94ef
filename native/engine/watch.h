// The one watch over all that a rank waits for, from the first import to the end of MPI_Finalize.
//
// A thread of its own keeps every deadline, because the main thread may be in a call of MPI or of a
// plugin that never returns, with Python's lock in its hands. It knows the phase of the run and its
// limit, what the main thread waits for, each call of a plugin that is under way
// (net/plugin_call.h), and of each timed loop a heartbeat. Time in which this process was stopped,
// or frozen, counts as none.
//
// A limit is that of set-up as a whole, of each call of a plugin and each heartbeat afterwards, and
// of the end as a whole. What can tell all ranks hears first of what is late (`await`). `kLeadS`
// later the watch itself prints it and ends the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace tcpx::watch {

constexpr double kEndS = 20;        // around MPI_Finalize, and after every error that ends the run
constexpr double kLeadS = 3;        // the ranks that are there hear why meanwhile
constexpr double kLongCallS = 0.5;  // a call of a plugin that takes longer can be asked for

struct Pace {
  double first_line_s = 30;  // of set-up: after so long a line says what is waited for,
  double every_s = 10;       // and then so often
  double signal_grace_s =
      0.1;  // the main thread may end by a signal itself; later on 20 times that
};

// Begins to watch this process, in which SIGINT and SIGTERM are flags from now on; twice is once.
void begin(double limit_s, const Pace& pace);

// For a library, in a process whose signals and set-up are not ours: a call of a plugin or a round
// of a session that takes longer than `limit_s` (set by `option`) ends the process with a line and
// `exit_code`. Once more it is another limit. Nothing in a rank of ours, which has its own; no
// forked child is watched.
void guard(const std::string& option, double limit_s, int exit_code);

// The thread that calls this ends such a process: a plugin that does not let it, in a destructor,
// ends it as one of its calls would.
void guard_end();

// Who this is, and, "" for none, the file in whose record `slot` a launcher looks what is waited
// for.
void set_name(const std::string& name, const std::string& table, int slot);
void set_limit(double limit_s);  // of set-up, from the beginning

// What the main thread waits for from now on. In set-up it ends `later_s` after the limit: where
// others know the cause, they speak first.
void waits_for(const std::string& what, double later_s);

double left_s();  // until the limit of set-up; infinity where none is watched

// Set-up is over: from now on no call of a plugin, and no sweep of a timed loop, may take longer
// than `limit_s`, which is of `option`; 0: any time. `exit_code` is that of a process that ends so.
void enter(const std::string& option, double limit_s, int exit_code);
// The run is over, or has failed: all that is left to do ends within kEndS. `exit_code` is the
// run's.
void ending(int exit_code);

// A call of a plugin that takes long, in words, and whether it is late.
struct LongCall {
  std::string text;
  double age_s;
  bool late;
};
// Waits up to `seconds` for one; none.
std::optional<LongCall> await(double seconds);

// How long this process has run since an instant of now_ns(), without the time in which it was
// stopped or frozen; and how long that was, since the watch began.
int64_t running_since(int64_t since_ns);
int64_t stopped_ns();
int64_t running_ns();  // a clock that stands meanwhile

// What a timed loop may be in, of a flow; `kTest` also between two calls.
enum class InCall : uintptr_t { kTest = 0, kPost = 1, kConsumed = 2, kFlush = 3, kTestFlush = 4 };
const char* call_name(InCall call);

// Of a timed loop, or a session: when it last looked around; 0: no batch or round is under way. And
// where it is, for a picture of one that does not come back.
struct Heartbeat {
  std::atomic<int64_t> looked_ns{0};
  void enter(const void* flow, InCall call) {
    at_.store(reinterpret_cast<uintptr_t>(flow) + static_cast<uintptr_t>(call),
              std::memory_order_relaxed);
  }
  const void* flow() const { return reinterpret_cast<const void*>(at_.load() & ~kCalls); }
  InCall call() const { return static_cast<InCall>(at_.load() & kCalls); }

 private:
  static constexpr uintptr_t kCalls = 7;
  std::atomic<uintptr_t> at_{0};  // a flow, whose address has room for the call
};
// While it lives the watch looks at it. `where` is of what it is: "in a batch".
class Watched {
 public:
  Watched(const Heartbeat& heartbeat, const char* where);
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  const Heartbeat& heartbeat_;
};
// A round of a session; nothing if no watch looks.
class Round {
 public:
  explicit Round(Heartbeat& heartbeat);
  ~Round() { heartbeat_.looked_ns.store(0, std::memory_order_relaxed); }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

 private:
  Heartbeat& heartbeat_;
};

// A text, its rest zeros: "SINCE_NS WHAT", "over OPTION" with that of the phase, "ended CODE",
// "ended 0, signal NUMBER" of one that came behind it;
// "told" of the launcher itself.
constexpr int kRecordBytes = 256;

}  // namespace tcpx::watch
