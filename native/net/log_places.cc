#include "net/log_places.h"

#include <cstring>
#include <mutex>

namespace tcpx::plugin_log {
namespace {

std::atomic<int> g_known{0};
std::mutex g_adding;
constexpr int kMost = kPlaces / 2;  // a search of what is not there stays short

}  // namespace

int add_place(const char* function, int line, int level, const char* text) {
  const std::lock_guard<std::mutex> lock(g_adding);
  if (const int found = find_place(function, line); found != kNoPlace) return found;
  size_t i = first_place_of(function, line);
  if (g_known == kMost) {
    i = kElsewhere;
    function = "elsewhere";
    line = 0;
  } else {
    ++g_known;
    while (g_places[i].function.load(std::memory_order_relaxed) != nullptr) i = (i + 1) % kPlaces;
  }
  LogSite& place = g_places[i];
  place.line = line;
  place.level = level;
  memcpy(place.text, text, kLineBytes);
  place.function.store(function, std::memory_order_release);
  return static_cast<int>(i);
}

}  // namespace tcpx::plugin_log
