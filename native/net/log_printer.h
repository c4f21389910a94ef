// What of a plugin's log goes to stderr: by level and subsystem, each place three times, then
// counted.
#pragma once

#include <atomic>
#include <string>

#include "net/abi_v7.h"
#include "net/log_places.h"

namespace tcpx::plugin_log {

// Lines up to this level are also written to stderr (kNetLogNone: none); lines of levels INFO and
// TRACE only if they belong to one of these subsystems (NCCL's bits). Each place is written 3
// times; then its count, whenever that gains a digit and at the end of the process.
void set_print(int level, unsigned long subsystems);
// Who this process is, for those lines: "rank 3 on host1".
void set_name(const std::string& name);
// Says how many lines were not printed. For who ends the process by _exit; others need not.
void end_printing();

// Up to this level.
inline std::atomic<int> g_print_level{kNetLogNone};

// Whether a line is asked for. `flags` are the subsystems that it belongs to.
bool is_asked_for(int level, unsigned long flags);
inline bool to_print(int level, unsigned long flags) {
  return level <= g_print_level.load(std::memory_order_relaxed) && is_asked_for(level, flags);
}

// Counts a line of a place that is to be printed. True for the first three; and where their number
// has another digit it is printed instead.
bool may_print(LogSite& place);

void print(int level, const char* function, int line, const char* text);

}  // namespace tcpx::plugin_log
