#include "engine/session.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <map>
#include <optional>

#include "bindings/bind.h"
#include "bindings/flow_report.h"
#include "memory/cuda_slots.h"
#include "net/library.h"

namespace tcpx {
namespace {

using ByteArray = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A session, and the arrays that may not go before its comms are closed.
class HoldingSession {
 public:
  HoldingSession(Plugin& plugin, int device, const TransferLimits& limits, int gpu,
                 UnpackMode unpack)
      : session_(plugin.net(), device, limits, gpu, unpack) {}

  std::map<int, nb::object> arrays_;
  Session session_;
};

// A call of the session, which waits for its lock while another thread is within the plugin: other
// threads of Python go on meanwhile.
template <typename Call>
auto unlocked(const Call& call) {
  nb::gil_scoped_release release;
  return call();
}

// Lets Python run its handlers of signals, which may raise.
void run_signal_handlers() {
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

List<Fields> picture_of(const std::vector<TransferPicture>& picture) {
  List<Fields> rows;
  for (const TransferPicture& p : picture) {
    Fields row = dict_of(p);
    row["queued"] = p.queued;
    row["oldest_transfer"] = p.oldest_transfer;
    row["oldest_message"] = p.oldest_message;
    rows.append(row);
  }
  return rows;
}

}  // namespace

void bind_session(nb::module_& m) {
  nb::enum_<Direction>(m, "Direction")
      .value("SEND", Direction::kSend)
      .value("RECEIVE", Direction::kReceive);
  nb::enum_<TransferState>(m, "TransferState")
      .value("COMPLETE", TransferState::kComplete)
      .value("ACTIVE", TransferState::kActive)
      .value("FAILED", TransferState::kFailed);
  nb::enum_<WaitResult>(m, "WaitResult")
      .value("COMPLETE", WaitResult::kComplete)
      .value("FAILED", WaitResult::kFailed)
      .value("STALLED", WaitResult::kStalled)
      .value("CLOSED", WaitResult::kClosed);

  nb::class_<HoldingSession>(m, "Session")
      .def(
          "__init__",
          [](HoldingSession* self, Plugin& plugin, int device, int channels, uint64_t chunk_bytes,
             int window_send, int window_receive, int gpu, int unpack) {
            const TransferLimits limits{channels, chunk_bytes, window_send, window_receive};
            new (self) HoldingSession(plugin, device, limits, gpu, static_cast<UnpackMode>(unpack));
          },
          "plugin"_a, "device"_a, "channels"_a, "chunk_bytes"_a, "window_send"_a,
          "window_receive"_a, "gpu"_a = -1, "unpack"_a = static_cast<int>(UnpackMode::kKernel),
          nb::keep_alive<1, 2>())
      .def(
          "listen",
          [](HoldingSession& s, int channel) {
            const auto handle = unlocked([&] { return s.session_.listen(channel); });
            return nb::bytes(handle.data(), handle.size());
          },
          "channel"_a)
      .def(
          "add_send",
          [](HoldingSession& s, int channel, const nb::bytes& handle) {
            if (handle.size() != kNetHandleBytes) throw nb::value_error("a handle has 128 bytes");
            const auto* bytes = reinterpret_cast<const uint8_t*>(handle.c_str());
            unlocked([&] { s.session_.add_send(channel, bytes); });
          },
          "channel"_a, "handle"_a)
      .def(
          "establish",
          [](HoldingSession& s, double timeout_s, std::optional<Direction> until) {
            unlocked([&] { s.session_.establish(timeout_s, until, run_signal_handlers); });
          },
          "timeout_s"_a, "until"_a.none())
      .def(
          "register_memory",
          [](HoldingSession& s, nb::object array) {
            const auto bytes = nb::cast<ByteArray>(array);
            const int id = unlocked([&] {
              return s.session_.register_memory(bytes.data(), bytes.size(), kNetPtrHost);
            });
            s.arrays_.emplace(id, std::move(array));
            return id;
          },
          nb::sig("def register_memory(self, array: numpy.typing.NDArray[numpy.uint8]) -> int"),
          "array"_a)
      .def(
          "register_gpu_memory",
          [](HoldingSession& s, CudaSlots& memory, nb::object owner) {
            const int id = unlocked([&] {
              return s.session_.register_memory(memory.data(), memory.bytes(), kNetPtrCuda);
            });
            s.arrays_.emplace(id, std::move(owner));
            return id;
          },
          "memory"_a, "owner"_a, "As checked by CudaSlots; `owner` lives as long.")
      .def(
          "deregister_memory",
          [](HoldingSession& s, int memory) {
            unlocked([&] { s.session_.deregister_memory(memory); });
            s.arrays_.erase(memory);
          },
          "memory"_a)
      .def(
          "create", [](HoldingSession& s) { return s.session_.create(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "post",
          [](HoldingSession& s, uint64_t transfer, Direction direction, int memory, uint64_t offset,
             uint64_t bytes) { s.session_.post(transfer, direction, memory, offset, bytes); },
          "transfer"_a, "direction"_a, "memory"_a, "offset"_a, "bytes"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "release", [](HoldingSession& s, uint64_t transfer) { s.session_.release(transfer); },
          "transfer"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "poll", [](HoldingSession& s, uint64_t transfer) { return s.session_.poll(transfer); },
          "transfer"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "wait",
          [](HoldingSession& s, uint64_t transfer, double patience_s) {
            return s.session_.wait(transfer, static_cast<int64_t>(patience_s * 1e9),
                                   run_signal_handlers);
          },
          "transfer"_a, "patience_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("fault",
           [](HoldingSession& s) -> std::optional<Fields> {
             const TransferFault f = unlocked([&] { return s.session_.fault(); });
             if (f.kind == FaultKind::kNone) return std::nullopt;
             Fields d = dict_of(f);
             d["transfer"] = f.transfer;
             d["message"] = f.message;
             return d;
           })
      .def("picture",
           [](HoldingSession& s) {
             return picture_of(unlocked([&] { return s.session_.picture(); }));
           })
      .def(
          "close", [](HoldingSession& s) { s.session_.close(); },
          nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tcpx
