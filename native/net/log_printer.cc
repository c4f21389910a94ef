#include "net/log_printer.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>

namespace tcpx::plugin_log {
namespace {

constexpr uint64_t kPrinted = 3;  // lines of a place

std::atomic<unsigned long> g_subsystems{0};
std::mutex g_name_mutex;
char g_name[kLineBytes];  // "rank 3 on host1 "; threads of a plugin may outlive objects

const char* level_name(int level) {
  constexpr const char* kNames[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  return level >= 0 && level <= kNetLogTrace ? kNames[level] : "?";
}

bool has_another_digit(uint64_t count) {
  while (count % 10 == 0) count /= 10;
  return count == 1;
}

std::string with_commas(uint64_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(at, ",");
  return text;
}

void tell_how_many(LogSite& place, uint64_t count) {
  place.told_of.store(count, std::memory_order_relaxed);
  const std::string text = "... " + with_commas(count - kPrinted) + " more";
  print(place.level, place.function.load(std::memory_order_relaxed), place.line, text.c_str());
}

}  // namespace

void set_print(int level, unsigned long subsystems) {
  g_subsystems.store(subsystems, std::memory_order_relaxed);
  g_print_level.store(level, std::memory_order_relaxed);
  static const int at_end = std::atexit(end_printing);
  (void)at_end;
}

void set_name(const std::string& name) {
  const std::lock_guard<std::mutex> lock(g_name_mutex);
  snprintf(g_name, sizeof(g_name), "%s ", name.c_str());
}

bool is_asked_for(int level, unsigned long flags) {
  if (level == kNetLogNone) return false;
  // What NCCL itself warns of belongs to every subsystem.
  const bool of_any = level != kNetLogInfo && level != kNetLogTrace;
  return of_any || (flags & g_subsystems.load(std::memory_order_relaxed)) != 0;
}

bool may_print(LogSite& place) {
  const uint64_t count = place.to_print.fetch_add(1, std::memory_order_relaxed) + 1;
  if (count > kPrinted && count % 10 == 0 && has_another_digit(count)) tell_how_many(place, count);
  return count <= kPrinted;
}

void print(int level, const char* function, int line, const char* text) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm day;
  localtime_r(&now.tv_sec, &day);
  char clock[16];
  strftime(clock, sizeof(clock), "%H:%M:%S", &day);
  const std::lock_guard<std::mutex> lock(g_name_mutex);
  char whole[2 * kLineBytes];
  const int bytes = snprintf(whole, sizeof(whole), "# plugin: %s%s.%03ld %s %s:%d %s\n", g_name,
                             clock, now.tv_nsec / 1'000'000, level_name(level),
                             function != nullptr ? function : "?", line, text);
  const size_t fits = bytes < static_cast<int>(sizeof(whole)) ? bytes : sizeof(whole) - 1;
  whole[fits - 1] = '\n';
  // At once, so that lines of several ranks stay whole; there is nobody to tell that it failed.
  if (write(STDERR_FILENO, whole, fits) < 0) return;
}

void end_printing() {
  for_each_place([](LogSite& place) {
    const uint64_t count = place.to_print.load(std::memory_order_relaxed);
    if (count > kPrinted && count > place.told_of.load(std::memory_order_relaxed)) {
      tell_how_many(place, count);
    }
  });
}

}  // namespace tcpx::plugin_log
