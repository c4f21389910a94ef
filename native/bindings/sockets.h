#pragma once

#include "bindings/bind.h"
#include "engine/tcp_info.h"

namespace tcpx {

class SocketTotalsDict : public nb::dict {
  NB_OBJECT_DEFAULT(SocketTotalsDict, nb::dict, "SocketTotals", PyDict_Check)
};

SocketTotalsDict totals_of(const TcpSockets& sockets);

}  // namespace tcpx
