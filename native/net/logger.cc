#include "net/logger.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

namespace tcpx::plugin_log {
namespace {

constexpr int kLines = 16;
constexpr int kLineBytes = 512;
constexpr int kPlaces = 64;

std::atomic<uint64_t> g_warnings{0};
std::atomic<bool> g_quiet{false};
std::atomic<int> g_print_level{kNetLogNone};

std::mutex g_mutex;  // guards the ring and what places say; while quiet taken once a place
char g_ring[kLines][kLineBytes];
uint64_t g_written = 0;
char g_first_warnings[kLines][kLineBytes];
int g_first_warnings_count = 0;

// Where a plugin warns from. It is known by the texts that it passes, which are its constants.
struct Place {
  std::atomic<const char*> format{nullptr};
  std::atomic<const char*> function{nullptr};
  std::atomic<uint64_t> count{0};
  std::atomic<int64_t> last_ns{0};
  char text[kLineBytes];

  bool is(const char* f, const char* name) const {
    return format.load(std::memory_order_acquire) == f &&
           function.load(std::memory_order_relaxed) == name;
  }
};
Place g_places[kPlaces];
std::atomic<int> g_last_warning{kNoPlace};

// What this thread was warned of in its present call, the last text and the one before that
// differs.
struct Heard {
  char last[kLineBytes];
  char before[kLineBytes];
};
thread_local Heard t_heard{};

// INFO lines of set-up are kept too: they say which NICs and settings a plugin chose.
constexpr int kKeepLevel = kNetLogAbort;

// Within kCoarseNs of CLOCK_MONOTONIC, for a few nanoseconds: a plugin may warn without end.
constexpr int64_t kCoarseNs = 10'000'000;
int64_t coarse_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// The place of a warning that was heard before, or kNoPlace.
int known_place(const char* format, const char* function) {
  const int last = g_last_warning.load(std::memory_order_relaxed);
  if (last >= 0 && g_places[last].is(format, function)) return last;
  for (int i = 0; i < kPlaces && g_places[i].format.load(std::memory_order_relaxed); ++i) {
    if (g_places[i].is(format, function)) return i;
  }
  return kNoPlace;
}

// Room for a new one; kNoPlace where as many have warned as there is room for. With g_mutex held.
int new_place(const char* format, const char* function, const char* text) {
  for (int i = 0; i < kPlaces; ++i) {
    if (g_places[i].is(format, function)) return i;  // another thread came first
    if (g_places[i].format.load(std::memory_order_relaxed) != nullptr) continue;
    memcpy(g_places[i].text, text, kLineBytes);
    g_places[i].count.store(1, std::memory_order_relaxed);
    g_places[i].last_ns.store(coarse_ns(), std::memory_order_relaxed);
    g_places[i].function.store(function, std::memory_order_relaxed);
    g_places[i].format.store(format, std::memory_order_release);
    return i;
  }
  return kNoPlace;
}

// With g_mutex held.
void keep_first_warning(const char* text) {
  if (g_first_warnings_count == kLines) return;
  for (int i = 0; i < g_first_warnings_count; ++i) {
    if (strcmp(g_first_warnings[i], text) == 0) return;
  }
  snprintf(g_first_warnings[g_first_warnings_count++], kLineBytes, "%s", text);
}

void log(int level, unsigned long flags, const char* function, int line, const char* format, ...) {
  (void)flags;
  const bool warns = level == kNetLogWarn && format != nullptr;
  int place = kNoPlace;
  if (level == kNetLogWarn) g_warnings.fetch_add(1, std::memory_order_relaxed);
  if (warns && (place = known_place(format, function)) != kNoPlace) {
    Place& known = g_places[place];
    known.count.fetch_add(1, std::memory_order_relaxed);
    known.last_ns.store(coarse_ns(), std::memory_order_relaxed);
    g_last_warning.store(place, std::memory_order_relaxed);
  }
  const int print_level = g_print_level.load(std::memory_order_relaxed);
  const bool keep = !g_quiet.load(std::memory_order_relaxed) && level <= kKeepLevel;
  const bool print = level <= print_level && level != kNetLogNone;
  // Of more places than there is room for nothing is kept.
  const bool heard_first = warns && place == kNoPlace &&
                           g_places[kPlaces - 1].format.load(std::memory_order_relaxed) == nullptr;
  if ((!keep && !print && !heard_first) || format == nullptr) return;

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
  if (keep && warns && strcmp(t_heard.last, text) != 0) {
    memcpy(t_heard.before, t_heard.last, sizeof(text));
    memcpy(t_heard.last, text, sizeof(text));
  }
  if (keep || heard_first) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (keep) memcpy(g_ring[g_written++ % kLines], text, sizeof(text));
    if (keep && warns) keep_first_warning(text);
    if (heard_first && (place = new_place(format, function, text)) != kNoPlace) {
      g_last_warning.store(place, std::memory_order_relaxed);
    }
  }
  errno = kept_errno;
}

}  // namespace

NetLogger function() { return &log; }
void set_print_level(int level) { g_print_level.store(level, std::memory_order_relaxed); }
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
  const Place* found = nullptr;
  uint64_t times = 0;
  for (const Place& place : g_places) {
    if (place.format.load(std::memory_order_acquire) == nullptr) break;
    if (place.last_ns.load(std::memory_order_relaxed) < since_ns - kCoarseNs) continue;
    const uint64_t count = place.count.load(std::memory_order_relaxed);
    if (found == nullptr || count < times) {
      found = &place;
      times = count;
    }
  }
  if (found == nullptr) return "";
  char when[64];
  const double age_s = static_cast<double>(coarse_ns() - found->last_ns.load()) / 1e9;
  if (times == 1) {
    snprintf(when, sizeof(when), " (once, %.1f s ago)", age_s);
  } else {
    snprintf(when, sizeof(when), " (%llu times, last %.1f s ago)",
             static_cast<unsigned long long>(times), age_s);
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  return "; the plugin said: " + std::string(found->text) + when;
}

void begin_call() { t_heard.last[0] = t_heard.before[0] = '\0'; }

std::string quote_call() {
  if (t_heard.last[0] != '\0') return "; the plugin said: " + std::string(t_heard.last);
  const auto lines = recent_lines();
  return lines.empty() ? "" : "; the plugin said: " + lines.back();
}

int last_warning() { return g_last_warning.load(std::memory_order_relaxed); }

std::string text_of(int place) {
  if (place < 0 || place >= kPlaces) return "";
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_places[place].text;
}

std::string quote(int place) {
  const std::string text = text_of(place);
  if (text.empty()) return "";
  const bool repeats = g_places[place].count.load(std::memory_order_relaxed) > 1;
  return "; the plugin said" + std::string(repeats ? ", and not only once: " : ": ") + text;
}

std::string quote_end() {
  if (t_heard.last[0] == '\0' || quiet()) return quote(last_warning());
  const bool two = t_heard.before[0] != '\0';
  return "; the plugin said: " + (two ? std::string(t_heard.before) + "; " : "") + t_heard.last;
}

}  // namespace tcpx::plugin_log
