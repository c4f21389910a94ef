// The logger that we hand to a plugin.
//
// A plugin calls it unfiltered, from several threads, 10^5 to 10^6 times a GiB. Where a line comes
// from is looked up before anything is formatted. While the timed loop runs, a line only bumps
// counters, unless it is the first warning from its place. Outside of the loop each place is kept 3
// times, and all lines of a plugin's initialisation and of a call of set-up.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "net/abi_v7.h"
#include "net/log_places.h"

namespace tcpx::plugin_log {

// The function for init; a variadic C function, safe from any thread.
NetLogger function();

// All that is said from here on is kept, up to 64 KiB, until `initialised`; so it is from the
// beginning of the process.
void begin_init();
void initialised();
std::vector<std::string> init_lines();

// While quiet nothing is formatted or kept but the first warning of each place; the timed loop is
// quiet. What was warned of before is not what a fault in the loop is about.
void set_quiet(bool quiet);
bool quiet();

uint64_t warnings();                      // WARN lines so far, kept or not
std::vector<std::string> recent_lines();  // the last lines kept, oldest first

// What was warned of while not quiet, each text once, the first 16: of settings, mostly.
std::vector<std::string> first_warnings();

// The place in the plugin that warned last, since it became quiet if it is; kNoPlace: none. For a
// fault to keep, at no cost.
int last_warning();
// What was first warned of there, "" for no place.
std::string text_of(int place);
// "; the plugin said: ..." for the end of an error, "" if it said nothing.
std::string quote(int place);

// "; the plugin said: ..." for a stall: what was warned of since `since_ns` (CLOCK_MONOTONIC), with
// its count and age. A warning that came once goes before one that repeats; "" for none.
std::string quote_since(int64_t since_ns);

// A call of the plugin that is not of traffic, on this thread, while it lives: what was warned of
// before is not what its error is about.
class SetUpCall {
 public:
  SetUpCall();
  ~SetUpCall();
  SetUpCall(const SetUpCall&) = delete;
  SetUpCall& operator=(const SetUpCall&) = delete;
};
// "; the plugin said: ..." for the error of this thread's last such call: the last warning in it,
// else the last of any thread since `since_ns` (CLOCK_MONOTONIC), when the connection of that call
// began. Plugins connect in threads of their own. Behind each error TCPX logs a trace of where it
// was, so the last line of all says less; it is quoted when nothing was warned of. "" if nothing
// was said since the call began.
std::string quote_call(int64_t since_ns = std::numeric_limits<int64_t>::max());
// For a plugin that ends the process: the last two texts that differ, older first; when this thread
// heard none, the last place that warned.
std::string quote_end();

}  // namespace tcpx::plugin_log
