// The logger that we hand to a plugin.
//
// A plugin calls it unfiltered, from several threads, 10^5 to 10^6 times a GiB: while the timed
// loop runs a call only bumps a counter, unless nothing was warned of from that place before.
// Outside of it the last lines are kept. An error can quote what the plugin said.
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

// While quiet nothing is formatted or kept but the first warning of each place; the timed loop is
// quiet. What was warned of before is not what a fault in the loop is about.
void set_quiet(bool quiet);
bool quiet();

uint64_t warnings();                      // WARN lines so far, kept or not
std::vector<std::string> recent_lines();  // the last lines kept, oldest first

// What was warned of while not quiet, each text once, the first 16: of settings, mostly, which so
// many other lines follow that `recent_lines` has lost them.
std::vector<std::string> first_warnings();

// The place in the plugin that warned last, since it became quiet if it is; kNoPlace: none. For a
// fault to keep, at no cost.
constexpr int kNoPlace = -1;
int last_warning();
// What was first warned of there, "" for no place.
std::string text_of(int place);
// "; the plugin said: ..." for the end of an error, "" where it said nothing.
std::string quote(int place);

// "; the plugin said: ..." for a stall: what was warned of since `since_ns` (CLOCK_MONOTONIC), with
// its count and age. A warning that came once goes before one that repeats; "" for none.
std::string quote_since(int64_t since_ns);

// A call that is not of the timed loop begins on this thread: what a plugin warned of before is not
// what this call's error is about.
void begin_call();
// "; the plugin said: ..." for the error of that call: what this thread was warned of in it last.
// Behind each error TCPX logs a trace of where it was, so the last line of all says less; it is
// quoted when nothing was warned of.
std::string quote_call();
// For a plugin that ends the process: the last two texts that differ, older first; when this thread
// heard none, the last place that warned.
std::string quote_end();

}  // namespace tcpx::plugin_log
