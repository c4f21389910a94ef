#include "net/logger.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace tcpx::plugin_log {
namespace {

constexpr int kLines = 16;
constexpr int kLineBytes = 512;

std::atomic<uint64_t> g_warnings{0};
std::atomic<bool> g_quiet{false};
std::atomic<int> g_print_level{kNetLogNone};

std::mutex g_mutex;  // guards the ring below; never taken while quiet
char g_ring[kLines][kLineBytes];
uint64_t g_written = 0;

// INFO lines of set-up are kept too: they say which NICs and settings a plugin chose.
constexpr int kKeepLevel = kNetLogAbort;

void log(int level, unsigned long flags, const char* function, int line, const char* format, ...) {
  (void)flags;
  if (level == kNetLogWarn) g_warnings.fetch_add(1, std::memory_order_relaxed);
  const int print_level = g_print_level.load(std::memory_order_relaxed);
  const bool keep = !g_quiet.load(std::memory_order_relaxed) && level <= kKeepLevel;
  const bool print = level <= print_level && level != kNetLogNone;
  if ((!keep && !print) || format == nullptr) return;

  const int kept_errno = errno;  // a plugin may log before it reads its own
  char text[kLineBytes];
  va_list arguments;
  va_start(arguments, format);
  // libc's vsnprintf prints "(null)" for a NULL string, which plugins do pass.
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  text[strcspn(text, "\r\n")] = '\0';
  if (print) {
    fprintf(stderr, "# plugin: %s:%d %s\n", function != nullptr ? function : "?", line, text);
  }
  if (keep) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    memcpy(g_ring[g_written++ % kLines], text, sizeof(text));
  }
  errno = kept_errno;
}

}  // namespace

NetLogger function() { return &log; }
void set_print_level(int level) { g_print_level.store(level, std::memory_order_relaxed); }
void set_quiet(bool quiet) { g_quiet.store(quiet, std::memory_order_relaxed); }
uint64_t warnings() { return g_warnings.load(std::memory_order_relaxed); }

std::vector<std::string> recent_lines() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<std::string> lines;
  const uint64_t first = g_written > kLines ? g_written - kLines : 0;
  for (uint64_t i = first; i < g_written; ++i) lines.emplace_back(g_ring[i % kLines]);
  return lines;
}

}  // namespace tcpx::plugin_log
