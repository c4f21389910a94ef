#pragma once

#include "bindings/bind.h"
#include "engine/tcp_info.h"

namespace tcpx {

nb::dict totals_of(const TcpSockets& sockets);

}  // namespace tcpx
