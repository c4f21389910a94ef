#include "bindings/sockets.h"

#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>

namespace tcpx {

SocketTotalsDict totals_of(const TcpSockets& sockets) {
  const SocketTotals t = sockets.totals();
  SocketTotalsDict d;
  d["sent"] = t.sent;
  d["received"] = t.received;
  d["retransmits"] = t.retransmits;
  d["rtt_us"] = t.rtt_us;
  d["readable"] = t.sockets;
  d["count"] = sockets.count();
  d["congestion_control"] = sockets.congestion_control();
  d["interfaces"] = sockets.interfaces();
  return d;
}

void bind_sockets(nb::module_& m) {
  nb::class_<TcpSockets>(m, "TcpSockets")
      .def(
          "__init__",
          [](TcpSockets* self, const std::set<uint64_t>& without) {
            new (self) TcpSockets(TcpSockets::opened_since(without));
          },
          "without"_a, "The connected TCP sockets of this process but for these inodes.")
      .def("totals", &totals_of)
      .def("set_congestion_control", &TcpSockets::set_congestion_control, "name"_a,
           "False where the kernel refuses.");
  m.def("tcp_socket_inodes", &tcp_socket_inodes, "Of all connected TCP sockets of this process.");
}

}  // namespace tcpx
