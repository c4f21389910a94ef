// The backend that the plugin offers.
#pragma once

#include "library/nixl/abi.h"

namespace tcpx::nixl {

// One whose init_failed() is true if it cannot be made: the reason is on stderr.
Backend* make_backend(const InitParams& init);

}  // namespace tcpx::nixl
