// What of a plugin's log goes to stderr: by level and subsystem, each place three times, then
// counted.
#pragma once

#include <cstdint>

#include "net/abi_v7.h"
#include "net/log_places.h"

namespace tcpx::plugin_log {

// Up to this level.
inline std::atomic<int> g_print_level{kNetLogNone};

// Whether a line is asked for. `flags` are the subsystems that it belongs to.
bool is_asked_for(int level, unsigned long flags);
inline bool to_print(int level, unsigned long flags) {
  return level <= g_print_level.load(std::memory_order_relaxed) && is_asked_for(level, flags);
}

// Counts a line of a place that is to be printed. True for the first three; and where their number
// has another digit it is printed instead.
bool may_print(Place& place);

void print(int level, const char* function, int line, const char* text);

}  // namespace tcpx::plugin_log
