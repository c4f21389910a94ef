#pragma once

#include "bindings/bind.h"
#include "engine/tcp_info.h"

namespace tcpx {

Fields totals_of(const TcpSockets& sockets);

}  // namespace tcpx
