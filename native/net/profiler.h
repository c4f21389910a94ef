// What plugins tell the profiler whose function init hands them, from v10 on: noted, not measured.
#pragma once

#include <cstdint>
#include <vector>

namespace tcpx {

struct ProfilerEvent {
  int type;  // start, stop, update, update and stop
  const void* phandle;
};

// The function (NetProfiler). Called by any thread of any plugin.
int note_profiler_event(void** event, int type, void* phandle, int64_t plugin_id, void* extra);

// How many events there were.
uint64_t profiler_events();
// The newest of them, at most 64, the oldest first. Exact where no event comes meanwhile.
std::vector<ProfilerEvent> last_profiler_events();

}  // namespace tcpx
