#include "net/profiler.h"

#include <algorithm>
#include <atomic>

#include "net/abi.h"

namespace tcpx {
namespace {

constexpr uint64_t kKept = 64;

struct Kept {
  std::atomic<int> type;
  std::atomic<const void*> phandle;
};

std::atomic<uint64_t> g_events{0};
Kept g_kept[kKept];

}  // namespace

int note_profiler_event(void** event, int type, void* phandle, int64_t, void*) {
  Kept& kept = g_kept[g_events.fetch_add(1, std::memory_order_relaxed) % kKept];
  kept.type.store(type, std::memory_order_relaxed);
  kept.phandle.store(phandle, std::memory_order_relaxed);
  if (event != nullptr) *event = nullptr;
  return kNetSuccess;
}

uint64_t profiler_events() { return g_events.load(std::memory_order_relaxed); }

std::vector<ProfilerEvent> last_profiler_events() {
  const uint64_t count = profiler_events();
  std::vector<ProfilerEvent> found;
  for (uint64_t i = count - std::min(count, kKept); i < count; ++i) {
    const Kept& kept = g_kept[i % kKept];
    found.push_back(
        {kept.type.load(std::memory_order_relaxed), kept.phandle.load(std::memory_order_relaxed)});
  }
  return found;
}

}  // namespace tcpx
