// What is told of flows: the fault that ended them, and a picture of each. Plain records, filled
// when it happens and put into words later; a baseline fills the same.
#pragma once

#include <cstdint>
#include <string>

#include "engine/program.h"
#include "net/logger.h"

namespace tcpx {

enum class FaultKind : int {
  kNone = 0,
  kPlugin = 1,       // a call returned an error
  kStall = 2,        // no progress within the stall timeout
  kSize = 3,         // the plugin reported another size than was posted
  kInterrupted = 4,  // a signal
  kTimeout = 5,      // the total time of the run is over
  kStopped = 6,      // request_stop(): another rank met trouble
  kSocket = 7,       // a socket of a baseline returned an error
  kGpu = 8,          // a call of the CUDA driver failed
  kHang = 9,         // a call of the plugin does not return
};

// The chunk, direction and channel are set only for a fault of a chunk: kPlugin, kSize, kSocket,
// kHang.
struct FlowFault {
  FaultKind kind = FaultKind::kNone;
  const char* call = "";  // of the plugin, the system or the CUDA driver
  int code = 0;           // of the plugin, system or driver, or the signal, or the reported size
  int said = plugin_log::kNoPlace;  // where the plugin warned last
  int64_t since_ns = 0;             // of kStall: the last progress; of kHang: the last look around
  FlowKind direction = FlowKind::kSend;
  int channel = 0;
  uint64_t chunk = 0;
  uint64_t bytes = 0;  // of the chunk
};

// The call that failed, in words; "" if none did.
std::string failed_call(const FlowFault& fault);

// One flow as it stood at one instant.
struct FlowPicture {
  FlowKind kind = FlowKind::kSend;
  int channel = 0;
  int window = 0;
  uint64_t posted = 0;
  uint64_t arrived = 0;   // the plugin is done with them, and they need not be in place
  uint64_t flushing = 0;  // of those, not visible yet
  uint64_t completed = 0;
  uint64_t bytes = 0;  // completed
  // The oldest chunk that is posted; with none posted, the one to be posted next.
  uint64_t oldest_chunk = 0;
  uint64_t oldest_bytes = 0;
  int64_t oldest_age_ns = -1;  // since it was posted; -1: nothing is posted
};

}  // namespace tcpx
