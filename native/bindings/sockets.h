#pragma once

#include "bindings/bind.h"
#include "engine/sockets.h"

namespace tcpx {

nb::dict totals_of(const TcpSockets& sockets);

}  // namespace tcpx
