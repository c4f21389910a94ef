#include "tap/core.h"

#include <semaphore.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "tap/inner.h"

// Of the C++ library's interface, which unistd's atexit stands on.
extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library);

namespace tap {

Live* g_live = nullptr;

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMostAttempts = 1 << 12;  // that nobody has ended

struct Attempt {
  HandleHash hash;
  uint8_t left[kNetHandleBytes];  // what the last call has left in the handle
};
struct Listener {
  HandleHash hash;
  int device;
};
struct Core {
  std::optional<Inner> inner;
  sem_t* exits = nullptr;  // posted when the process ends
  std::mutex mutex;
  int contexts = 0;
  std::map<const void*, Listener> listeners;
  std::map<const void*, Attempt> attempts;
};
// Made when the library is loaded, before anything here is called; gone when it is unloaded.
Core* g_core = nullptr;

// exit() calls it, and dlclose() does not: a library is not told which of them ends it. Nothing of
// this library is called, which may be gone by then.
sem_t* posted_at_exit() {
  auto* semaphore = static_cast<sem_t*>(malloc(sizeof(sem_t)));
  sem_init(semaphore, 0, 0);
  const auto post = reinterpret_cast<void (*)(void*)>(reinterpret_cast<void*>(&sem_post));
#ifndef __SANITIZE_THREAD__  // which calls what belongs to no library without its argument
  __cxa_atexit(post, semaphore, nullptr);
#else
  (void)post;
#endif
  return semaphore;
}

constexpr int kOfStart = 1;

}  // namespace

const void* load_inner(int abi, const void* own) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) abort();  // without a page nothing else goes on either
  madvise(page, kPage, MADV_WIPEONFORK);
  g_live = new (page) Live{};
  g_core = new Core;
  g_core->exits = posted_at_exit();
  g_core->inner.emplace(abi, own);
  return g_core->inner->table();
}

// The last thing of this library.
__attribute__((destructor)) static void unload() {
  int exits = 0;
  sem_getvalue(g_core->exits, &exits);
  Recorder* recorder = g_live->recorder.load();
  if (recorder != nullptr) recorder->stop(exits > 0);
  if (exits > 0) return;  // other threads may go on with their calls until the process is gone
  delete recorder;
  delete g_live->faults.load();
  munmap(g_live, kPage);
  g_core->inner->unload();
  delete g_core;
}

int before_init(NetLogger logger) {
  Inner& inner = *g_core->inner;
  if (inner.table() == nullptr) {
    say(logger, kNetLogWarn, kOfStart, inner.refusal());
    return inner.code();
  }
  try {
    const Settings settings = read_settings();
    if (faults() == nullptr && !settings.faults.empty()) {
      auto* faults = new Faults(settings.faults);
      if (!faults->text().empty())
        say(logger, kNetLogWarn, kOfStart, "puts faults in: " + faults->text());
      g_live->faults = faults;
    }
  } catch (const BadSetting& bad) {
    say(logger, kNetLogWarn, kOfStart, bad.what());
    return kNetInvalidUsage;
  }
  if (faults() != nullptr) {
    const int code = faults()->of_call(Call::kInit);
    if (code > 0) return code;
  }
  return kNetSuccess;
}

void after_init(NetLogger logger, int abi, const char* name) {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  if (recorder() != nullptr) {
    ++g_core->contexts;
    return;
  }
  const std::string& path = g_core->inner->path();
  auto* made = new Recorder(read_settings(), logger, abi, path, name != nullptr ? name : "");
  g_live->recorder = made;
  g_core->contexts = 1;
  made->say(kNetLogInfo, kOfStart, "passes calls on to " + path + made->where());
}

void after_finalize() {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  if (recorder() == nullptr || --g_core->contexts > 0) return;
  Recorder* ended = g_live->recorder.exchange(nullptr);
  ended->stop(false);
  delete ended;
}

void listens(const void* handle, int device, const void* listen_comm) {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  g_core->listeners[listen_comm] = {hash_of_handle(handle), device};
}

void listens_no_more(const void* listen_comm) {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  g_core->listeners.erase(listen_comm);
}

void accepted(const void* listen_comm, const void* recv_comm) {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  const auto listener = g_core->listeners.find(listen_comm);
  if (listener == g_core->listeners.end()) return;
  recorder()->opened(recv_comm, false, listener->second.device, listener->second.hash);
}

HandleHash connects(const void* handle) {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  const auto begun = g_core->attempts.find(handle);
  const bool goes_on =
      begun != g_core->attempts.end() && memcmp(begun->second.left, handle, kNetHandleBytes) == 0;
  return goes_on ? begun->second.hash : hash_of_handle(handle);
}

void connected(const void* handle, const HandleHash& hash, int device, int code, const void* comm) {
  const std::lock_guard<std::mutex> lock(g_core->mutex);
  if (code == kNetSuccess && comm == nullptr) {
    if (g_core->attempts.size() >= kMostAttempts) g_core->attempts.clear();
    Attempt& attempt = g_core->attempts[handle];
    attempt.hash = hash;
    memcpy(attempt.left, handle, kNetHandleBytes);
    return;
  }
  g_core->attempts.erase(handle);
  if (code == kNetSuccess) recorder()->opened(comm, true, device, hash);
}

}  // namespace tap
