#include "net/plugin_call.h"

#include <cxxabi.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <vector>

#include "net/plugin_error.h"
#include "net/printable.h"

namespace tcpx::plugin_call {
namespace {

struct Record;
std::mutex g_mutex;  // guards which records there are
// A forked child goes on to use it, though another thread had it.
[[maybe_unused]] const int g_forks =
    pthread_atfork([] { g_mutex.lock(); }, [] { g_mutex.unlock(); }, [] { g_mutex.unlock(); });
// Never destroyed: threads of others may end after the end of main.
std::vector<Record*>& records() {
  static auto* made = new std::vector<Record*>;
  return *made;
}

struct Record {
  Record() {
    const std::lock_guard<std::mutex> lock(g_mutex);
    records().push_back(this);
  }
  ~Record() {
    const std::lock_guard<std::mutex> lock(g_mutex);
    auto& all = records();
    all.erase(std::remove(all.begin(), all.end(), this), all.end());
  }
  std::mutex mutex;
  const char* name = nullptr;  // of the call; NULL: none
  struct Slot* slot = nullptr;
  int64_t since_ns = 0;
  const void* subject = nullptr;
  About::Words words = nullptr;
};

// Beside the records, for a handler of signals, which may neither allocate nor lock. A handler can
// read a thread's variable only if it is in static TLS; then all of this library's are, and a
// program with little room there (NIXL's) cannot load it.
struct Slot {
  std::atomic<pid_t> thread{0};  // 0: free
  std::atomic<const char*> name{nullptr};
};
Slot g_slots[256];

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }  // glibc 2.28 has no gettid

// NULL if all are taken: of that call no handler knows.
Slot* take_slot(const char* name) {
  const pid_t self = this_thread();
  for (Slot& slot : g_slots) {
    pid_t free = 0;
    if (!slot.thread.compare_exchange_strong(free, self)) continue;
    slot.name.store(name);
    return &slot;
  }
  return nullptr;
}

void leave_slot(Slot* slot) {
  if (slot == nullptr) return;
  slot->name.store(nullptr);
  slot->thread.store(0);
}

Record& own() {
  thread_local Record record;
  return record;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// With its mutex held.
std::string words_of(const Record& record) {
  return record.words != nullptr ? record.words(record.subject) : "";
}

}  // namespace

About::About(const void* subject, Words words) {
  Record& record = own();
  const std::lock_guard<std::mutex> lock(record.mutex);
  record.subject = subject;
  record.words = words;
}

About::~About() {
  Record& record = own();
  const std::lock_guard<std::mutex> lock(record.mutex);
  record.words = nullptr;
}

Mark::Mark(const char* name) {
  Record& record = own();
  const int64_t now = now_ns();
  const std::lock_guard<std::mutex> lock(record.mutex);
  record.name = name;
  record.since_ns = now;
  leave_slot(record.slot);
  record.slot = take_slot(name);
}

Mark::~Mark() {
  Record& record = own();
  const std::lock_guard<std::mutex> lock(record.mutex);
  record.name = nullptr;
  leave_slot(record.slot);
  record.slot = nullptr;
}

const char* current() {
  const pid_t self = this_thread();
  for (const Slot& slot : g_slots) {
    if (slot.thread.load() == self) return slot.name.load();
  }
  return nullptr;
}

std::optional<UnderWay> oldest() {
  std::optional<UnderWay> found;
  const std::lock_guard<std::mutex> all(g_mutex);
  for (Record* record : records()) {
    const std::lock_guard<std::mutex> lock(record->mutex);
    if (record->name == nullptr || (found && found->since_ns <= record->since_ns)) continue;
    const std::string about = words_of(*record);
    found = UnderWay{record->name + (about.empty() ? "" : " " + about), record->since_ns};
  }
  return found;
}

std::string thrown() {
  std::string text = "of unknown type";
  if (const std::type_info* type = abi::__cxa_current_exception_type()) {
    int failed = 0;
    char* name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &failed);
    text = failed == 0 && name != nullptr ? name : type->name();
    free(name);
  }
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    const char* what = error.what();  // by the plugin's own code
    return text + ": " + (what != nullptr ? printable(what) : "an exception without words");
  } catch (...) {
    return text;
  }
}

void throw_named(const char* call) {
  const std::string what = thrown();
  std::string about;
  {
    Record& record = own();
    const std::lock_guard<std::mutex> lock(record.mutex);
    about = words_of(record);
  }
  throw PluginThrew(call, what, about + plugin_log::quote_call());
}

}  // namespace tcpx::plugin_call
