// How many of this machine's cores a process has for its workers, where nobody says how many
// workers there are. NCCL does not set in the environment what a host of ours does. So softtcpx
// looks by itself at the CPUs that it may use, and at other processes of this node that have it
// loaded and share them.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "softtcpx/environment/socket.h"

namespace softtcpx {

using Cpus = std::bitset<8192>;

struct Share {
  int64_t cpus;   // that these processes have together
  int64_t ranks;  // this process and those that may run on the same CPUs
};

// Pure. `quota` is in CPUs, 0: none.
Share share_of(const Cpus& own, const std::vector<Cpus>& others, double quota);

// Pure: a core for each worker, less what the caller needs and the rest of the process.
int workers_of(const Share& share);

// Pure: the same where it is host memory that moves. The caller moves it by itself, and is not
// woken, unless each process has four cores; a few workers then fill what memory can take.
int host_workers_of(const Share& share);

// The tightest limit of a control group from the process's own up; 0: none. `root` is in front of
// /proc and /sys.
double cpu_quota(const std::string& root = "");

// While it lives, other processes of this network namespace know that this one has softtcpx.
class Presence {
 public:
  Presence();

  // Of every other process: the CPUs that it may run on.
  std::vector<Cpus> others() const;

 private:
  Fd socket_;  // bound to a name that says it, which no file stands for
};

Share share_here(const Presence& presence);

}  // namespace softtcpx
