// The one deadline of a rank's set-up: start, MPI, the plugin's load, init and devices.
//
// A thread of its own keeps it, because the main thread may be in a call of MPI or of a plugin that
// never returns, with Python's lock in its hands. It tells every few seconds what the rank waits
// for, ends the process at the deadline, and ends it at a signal that the main thread does not
// heed.
#pragma once

#include <string>

namespace tcpx::setup_watch {

constexpr int kExitCode = 4;  // of an error in set-up

struct Pace {
  double first_line_s = 30;     // after so long a line says what is waited for,
  double every_s = 10;          // and then so often
  double signal_grace_s = 0.2;  // the main thread may end by a signal itself
};

// Begins to watch this process, in which SIGINT and SIGTERM are flags from now on; twice is once.
void begin(double limit_s, const Pace& pace);

// Who this is, and, "" for none, the file in whose record `slot` a launcher looks what is waited
// for.
void set_name(const std::string& name, const std::string& table, int slot);
void set_limit(double limit_s);  // from the beginning

// What the main thread waits for from now on. It ends `later_s` after the limit: where others know
// the cause, they speak first.
void waits_for(const std::string& what, double later_s);

double left_s();  // until the limit; infinity where no set-up is watched
bool end();       // set-up is over; whether it was watched

constexpr int kRecordBytes = 256;  // a text, its rest zeros: "SINCE_NS WHAT", or "over"

}  // namespace tcpx::setup_watch
