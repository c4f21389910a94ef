#include "net/net.h"

namespace tcpx {

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

std::string returned_text(const std::string& call, int code) {
  return "plugin call " + call + " returned " + std::to_string(code) + " (" + result_name(code) +
         ")";
}

}  // namespace tcpx
