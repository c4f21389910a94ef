// Names of what went wrong, and the classes that carry it across the border of the library.
#include "tcpx_p2p/session.h"

namespace tcpx_p2p {

Error::~Error() = default;
UsageError::~UsageError() = default;
TimeoutError::~TimeoutError() = default;
FatalError::~FatalError() = default;

const char* name_of(Status status) {
  switch (status) {
    case Status::kOk:
      return "kOk";
    case Status::kInvalidArgument:
      return "kInvalidArgument";
    case Status::kUnknownMemory:
      return "kUnknownMemory";
    case Status::kForeignMemory:
      return "kForeignMemory";
    case Status::kOutOfBounds:
      return "kOutOfBounds";
    case Status::kMemoryInUse:
      return "kMemoryInUse";
    case Status::kUnknownRemote:
      return "kUnknownRemote";
    case Status::kNotConnected:
      return "kNotConnected";
    case Status::kAlreadyDone:
      return "kAlreadyDone";
    case Status::kOutOfOrder:
      return "kOutOfOrder";
    case Status::kBadInfo:
      return "kBadInfo";
    case Status::kOtherVersion:
      return "kOtherVersion";
    case Status::kOtherPlugin:
      return "kOtherPlugin";
    case Status::kOtherSettings:
      return "kOtherSettings";
    case Status::kReleased:
      return "kReleased";
    case Status::kClosed:
      return "kClosed";
    case Status::kBufferTooSmall:
      return "kBufferTooSmall";
    case Status::kTimedOut:
      return "kTimedOut";
    case Status::kPluginMissing:
      return "kPluginMissing";
    case Status::kSetupFailed:
      return "kSetupFailed";
    case Status::kRemoteLost:
      return "kRemoteLost";
    case Status::kPluginFailed:
      return "kPluginFailed";
    case Status::kWrongBytes:
      return "kWrongBytes";
    case Status::kGpuFailed:
      return "kGpuFailed";
    case Status::kRemoteFailed:
      return "kRemoteFailed";
    case Status::kOutOfMemory:
      return "kOutOfMemory";
    case Status::kInternal:
      return "kInternal";
  }
  return "kUnknown";
}

const char* version() { return TCPX_P2P_VERSION; }

}  // namespace tcpx_p2p
