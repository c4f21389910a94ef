#include "net/logger.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "net/log_places.h"
#include "net/log_printer.h"
#include "net/printable.h"

namespace tcpx::plugin_log {
namespace {

constexpr int kLines = 16;
constexpr size_t kInitBytes = 64 << 10;
constexpr uint64_t kKept = 3;  // lines of a place, outside of init, calls of set-up and batches

std::atomic<uint64_t> g_warnings{0};
std::atomic<bool> g_quiet{false};
std::atomic<bool> g_initialising{true};
std::atomic<int> g_last_warning{kNoPlace};

std::mutex g_mutex;  // guards what is kept; while quiet taken once a place
char g_ring[kLines][kLineBytes];
uint64_t g_written = 0;
char g_first_warnings[kLines][kLineBytes];
int g_first_warnings_count = 0;
char g_last_warned[kLineBytes];  // of all threads
int64_t g_last_warned_ns = 0;
char g_init[kInitBytes];  // lines, each with its end
size_t g_init_bytes = 0;

// What this thread was told in its present call of set-up, or its last one: the last warning and
// the one before that differs, and the last line of any level.
struct Heard {
  char last[kLineBytes];
  char before[kLineBytes];
  uint64_t written;  // lines of all threads, when the call began
  bool calling;
};
thread_local Heard t_heard{};

// INFO lines are kept too: they say which NICs and settings a plugin chose.
constexpr int kKeepLevel = kNetLogAbort;

// With g_mutex held.
void keep_first_warning(const char* text) {
  if (g_first_warnings_count == kLines) return;
  for (int i = 0; i < g_first_warnings_count; ++i) {
    if (strcmp(g_first_warnings[i], text) == 0) return;
  }
  snprintf(g_first_warnings[g_first_warnings_count++], kLineBytes, "%s", text);
}

// With g_mutex held.
void keep_of_init(const char* text) {
  const size_t bytes = strlen(text) + 1;
  if (bytes > kInitBytes - g_init_bytes) return;
  memcpy(g_init + g_init_bytes, text, bytes);
  g_init_bytes += bytes;
}

void keep_line(const char* text, bool warns) {
  if (warns && strcmp(t_heard.last, text) != 0) {
    memcpy(t_heard.before, t_heard.last, kLineBytes);
    memcpy(t_heard.last, text, kLineBytes);
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  memcpy(g_ring[g_written++ % kLines], text, kLineBytes);
  if (warns) {
    keep_first_warning(text);
    memcpy(g_last_warned, text, kLineBytes);
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    g_last_warned_ns = now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  }
  if (g_initialising.load(std::memory_order_relaxed)) keep_of_init(text);
}

void warned_at(int number) {
  LogSite& place = place_at(number);
  place.warnings.fetch_add(1, std::memory_order_relaxed);
  place.warned_ns.store(coarse_ns(), std::memory_order_relaxed);
  g_last_warning.store(number, std::memory_order_relaxed);
}

void log(int level, unsigned long flags, const char* function, int line, const char* format, ...) {
  const bool warns = level == kNetLogWarn;
  if (warns) g_warnings.fetch_add(1, std::memory_order_relaxed);
  const bool quiet = g_quiet.load(std::memory_order_relaxed);
  const bool printable = to_print(level, flags);
  const bool keepable = !quiet && level <= kKeepLevel;
  if (format == nullptr || !(warns || printable || keepable)) return;

  if (function == nullptr) function = "?";
  int number = find_place(function, line);
  const bool is_new = number == kNoPlace;
  if (!is_new && !printable && !keepable) return warned_at(number);  // most of them

  const bool all = !quiet && (t_heard.calling || g_initialising.load(std::memory_order_relaxed));
  const int kept_errno = errno;  // a plugin may log before it reads its own
  bool keep = keepable, print_it = printable;
  if (!is_new) {
    LogSite& place = place_at(number);
    if (warns) warned_at(number);
    if (keepable) keep = place.seen.fetch_add(1, std::memory_order_relaxed) < kKept || all;
    // In init, too, which is short: there many lines may come from one place.
    if (printable && !g_initialising.load(std::memory_order_relaxed)) print_it = may_print(place);
    if (!keep && !print_it) {
      errno = kept_errno;
      return;
    }
  }
  char text[kLineBytes];
  va_list arguments;
  va_start(arguments, format);
  // libc's vsnprintf prints "(null)" for a NULL string, which plugins do pass.
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  text[strcspn(text, "\r\n")] = '\0';
  make_printable(text);  // it is no UTF-8, or was cut in the midst of a character
  if (is_new) {
    number = add_place(function, line, level, text);
    if (warns) warned_at(number);
    if (keepable) place_at(number).seen.fetch_add(1, std::memory_order_relaxed);
    if (printable) print_it = may_print(place_at(number));
  }
  if (print_it) print(level, function, line, text);
  if (keep) keep_line(text, warns);
  errno = kept_errno;
}

}  // namespace

NetLogger function() { return &log; }

void begin_init() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_init_bytes = 0;
  g_initialising.store(true, std::memory_order_relaxed);
}
void initialised() { g_initialising.store(false, std::memory_order_relaxed); }
std::vector<std::string> init_lines() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<std::string> lines;
  for (size_t at = 0; at < g_init_bytes; at += lines.back().size() + 1) {
    lines.emplace_back(g_init + at);
  }
  return lines;
}

void set_quiet(bool quiet) {
  if (quiet) g_last_warning.store(kNoPlace, std::memory_order_relaxed);
  g_quiet.store(quiet, std::memory_order_relaxed);
}
bool quiet() { return g_quiet.load(std::memory_order_relaxed); }
uint64_t warnings() { return g_warnings.load(std::memory_order_relaxed); }

std::vector<std::string> recent_lines() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<std::string> lines;
  const uint64_t first = g_written > kLines ? g_written - kLines : 0;
  for (uint64_t i = first; i < g_written; ++i) lines.emplace_back(g_ring[i % kLines]);
  return lines;
}

std::vector<std::string> first_warnings() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return {g_first_warnings, g_first_warnings + g_first_warnings_count};
}

std::string quote_since(int64_t since_ns) {
  const LogSite* found = nullptr;
  uint64_t times = 0;
  for_each_place([&](const LogSite& place) {
    const uint64_t count = place.warnings.load(std::memory_order_relaxed);
    if (count == 0) return;
    if (place.warned_ns.load(std::memory_order_relaxed) < since_ns - kCoarseNs) return;
    if (found == nullptr || count < times) {
      found = &place;
      times = count;
    }
  });
  if (found == nullptr) return "";
  char when[64];
  const double age_s = static_cast<double>(coarse_ns() - found->warned_ns.load()) / 1e9;
  if (times == 1) {
    snprintf(when, sizeof(when), " (once, %.1f s ago)", age_s);
  } else {
    snprintf(when, sizeof(when), " (%llu times, last %.1f s ago)",
             static_cast<unsigned long long>(times), age_s);
  }
  return "; the plugin said: " + std::string(found->text) + when;
}

SetUpCall::SetUpCall() {
  t_heard.last[0] = t_heard.before[0] = '\0';
  t_heard.calling = true;
  const std::lock_guard<std::mutex> lock(g_mutex);
  t_heard.written = g_written;
}
SetUpCall::~SetUpCall() { t_heard.calling = false; }

std::string quote_call(int64_t since_ns) {
  if (t_heard.last[0] != '\0') return "; the plugin said: " + std::string(t_heard.last);
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (since_ns < g_last_warned_ns) {
    return "; the plugin said: " + std::string(g_last_warned);
  }
  const LogSite* last = nullptr;  // the text of a place that warns often is that of its first line
  for_each_place([&](const LogSite& place) {
    const int64_t warned = place.warned_ns.load(std::memory_order_relaxed);
    if (warned > since_ns && (last == nullptr || warned > last->warned_ns)) last = &place;
  });
  if (last != nullptr) return "; the plugin said: " + std::string(last->text);
  if (g_written == t_heard.written) return "";
  return "; the plugin said: " + std::string(g_ring[(g_written - 1) % kLines]);
}

int last_warning() { return g_last_warning.load(std::memory_order_relaxed); }

std::string text_of(int place) { return place < 0 || place > kPlaces ? "" : place_at(place).text; }

std::string quote(int place) {
  const std::string text = text_of(place);
  if (text.empty()) return "";
  const bool repeats = place_at(place).warnings.load(std::memory_order_relaxed) > 1;
  return "; the plugin said" + std::string(repeats ? ", and not only once: " : ": ") + text;
}

std::string quote_end() {
  if (t_heard.last[0] == '\0' || quiet()) return quote(last_warning());
  const bool two = t_heard.before[0] != '\0';
  return "; the plugin said: " + (two ? std::string(t_heard.before) + "; " : "") + t_heard.last;
}

}  // namespace tcpx::plugin_log
