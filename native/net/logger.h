// The logger that we hand to a plugin.
//
// A plugin calls it unfiltered, from several threads, 10^5 to 10^6 times a GiB: while the timed
// loop runs a call only bumps a counter. Outside of it the last lines are kept, so that an error
// can quote what the plugin said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/abi_v7.h"

namespace tcpx::plugin_log {

// The function for init; a variadic C function, safe from any thread.
NetLogger function();

// Lines up to this level are also written to stderr (kNetLogNone: none).
void set_print_level(int level);

// While quiet nothing is formatted or kept; the timed loop is quiet.
void set_quiet(bool quiet);

uint64_t warnings();                      // WARN lines so far, kept or not
std::vector<std::string> recent_lines();  // the last lines kept, oldest first

}  // namespace tcpx::plugin_log
