// Whether the NIXL that loads us has the layout of abi.h.
#pragma once

#include <string>

namespace tcpx::nixl {

// "" if it has; else why not: what was looked for, where, and what to do.
std::string why_not_this_nixl();

}  // namespace tcpx::nixl
