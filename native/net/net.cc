#include "net/net.h"

#include <atomic>

namespace tcpx {
namespace {

std::atomic<uint64_t> g_profiler_events{0};

}  // namespace

int note_profiler_event(void** event, int, void*, int64_t, void*) {
  g_profiler_events.fetch_add(1, std::memory_order_relaxed);
  if (event != nullptr) *event = nullptr;
  return kNetSuccess;
}

uint64_t profiler_events() { return g_profiler_events.load(std::memory_order_relaxed); }

const char* result_name(int code) {
  switch (code) {
    case kNetSuccess:
      return "success";
    case kNetUnhandledCudaError:
      return "unhandled CUDA error";
    case kNetSystemError:
      return "system error";
    case kNetInternalError:
      return "internal error";
    case kNetInvalidArgument:
      return "invalid argument";
    case kNetInvalidUsage:
      return "invalid usage";
    case kNetRemoteError:
      return "remote error";
    case kNetInProgress:
      return "in progress";
    case kNetTimeout:
      return "timeout";
    default:
      return "unknown code";
  }
}

}  // namespace tcpx
