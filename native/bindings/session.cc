// Python's Session: one session of the library with one remote, which has no name.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <tuple>

#include "bindings/bind.h"
#include "engine/watch.h"
#include "library/plugins.h"
#include "library/state.h"
#include "memory/cuda_slots.h"
#include "net/library.h"

namespace tcpx {
namespace {

namespace p2p = tcpx_p2p;
using ByteArray = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Lets Python run its handlers of signals, which may raise.
void run_signal_handlers() {
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

p2p::Options options_of(uint64_t chunk_bytes, int window_send, int window_receive, int gpu,
                        int unpack) {
  p2p::Options options;
  options.chunk_bytes = chunk_bytes;
  options.window_send = window_send;
  options.window_receive = window_receive;
  options.gpu = gpu;
  options.unpack = static_cast<p2p::Unpack>(unpack);
  options.register_lazily = false;  // register_memory is to tell what the plugin refuses
  options.while_waiting = run_signal_handlers;
  return options;
}

// A session, and the arrays that may not go before its comms are closed.
struct HoldingSession {
  HoldingSession(Plugin& plugin, uint64_t wire_chunk_bytes, int device, int channels,
                 const p2p::Options& options)
      : state(std::make_shared<p2p::SessionState>(
            // The plugin is Python's, which keeps it and ends its context.
            p2p::PluginUse{{std::shared_ptr<void>(), &plugin}, wire_chunk_bytes, false}, device,
            channels, options)),
        remote(state->name_remote("")) {}
  // Before the arrays go, whoever else holds the state.
  ~HoldingSession() {
    try {
      state->close();
    } catch (const std::exception&) {
      // Nobody is left to be told; close() tells.
    }
  }

  std::map<uint64_t, nb::object> arrays;
  std::shared_ptr<p2p::SessionState> state;
  p2p::Remote remote;
};

// A call of the session, which waits for its lock while another thread is within the plugin: other
// threads of Python go on meanwhile.
template <typename Call>
auto unlocked(const Call& call) {
  nb::gil_scoped_release release;
  return call();
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }
std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

using InfoFields = nb::typed<nb::tuple, nb::bytes, uint64_t, uint64_t, List<nb::bytes>>;

p2p::ConnInfo info_of(const nb::bytes& plugin, uint64_t chunk_bytes, uint64_t wire_chunk_bytes,
                      const std::vector<nb::bytes>& handles) {
  p2p::ConnInfo info{text_of(plugin), chunk_bytes, wire_chunk_bytes, {}};
  for (const nb::bytes& given : handles) {
    if (given.size() != kNetHandleBytes) throw nb::value_error("a handle has 128 bytes");
    memcpy(info.handles.emplace_back().data(), given.c_str(), given.size());
  }
  return info;
}

void bind_info(nb::module_& m) {
  m.def(
      "encode_connection_info",
      [](const nb::bytes& plugin, uint64_t chunk_bytes, uint64_t wire_chunk_bytes,
         const std::vector<nb::bytes>& handles) {
        return bytes_of(p2p::encode(info_of(plugin, chunk_bytes, wire_chunk_bytes, handles)));
      },
      "plugin"_a, "chunk_bytes"_a, "wire_chunk_bytes"_a, "handles"_a);
  m.def(
      "decode_connection_info",
      [](const nb::bytes& bytes) -> InfoFields {
        const p2p::ConnInfo info = p2p::decode(text_of(bytes));
        List<nb::bytes> handles;
        for (const p2p::Handle& handle : info.handles) {
          handles.append(nb::bytes(handle.data(), handle.size()));
        }
        return nb::make_tuple(bytes_of(info.plugin), info.chunk_bytes, info.wire_chunk_bytes,
                              handles);
      },
      "data"_a, "Plugin, chunk bytes, NCCL_DYNAMIC_CHUNK_SIZE, handles; raises SessionError.");
  using Given = std::tuple<nb::bytes, uint64_t, uint64_t, std::vector<nb::bytes>>;
  m.def(
      "require_equal_info",
      [](const Given& ours, const Given& theirs) {
        p2p::require_equal(std::apply(info_of, ours), std::apply(info_of, theirs));
      },
      "ours"_a, "theirs"_a, "Raises SessionError where two such sides cannot talk.");
  m.attr("CONNECTION_INFO_VERSION") = p2p::kInfoVersion;
}

// SessionError(status, text).
void bind_errors(nb::module_& m) {
  static nb::handle type = nb::exception<p2p::Error>(m, "SessionError");
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const p2p::Error& error) {
      const std::string text = error.what();
      const nb::object shown = nb::steal(
          PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
      PyErr_SetObject(type.ptr(), nb::make_tuple(static_cast<int>(error.status()), shown).ptr());
    }
  });
}

}  // namespace

void bind_session(nb::module_& m) {
  bind_errors(m);
  bind_info(m);
  nb::enum_<Direction>(m, "Direction")
      .value("SEND", Direction::kSend)
      .value("RECEIVE", Direction::kReceive);

  m.def("guard_calls", &p2p::guard_calls, "option"_a = "", "limit_s"_a = 0,
        "Watches calls of plugins by TCPX_P2P_CALL_TIMEOUT_S, else by a limit of an option (0: as "
        "it was); raises SessionError.");
  m.def("guard_end", &watch::guard_end, "Before this thread ends the process.");
  nb::class_<HoldingSession>(m, "Session")
      .def(
          "__init__",
          [](HoldingSession* self, Plugin& plugin, uint64_t wire_chunk_bytes, int device,
             int channels, uint64_t chunk_bytes, int window_send, int window_receive, int gpu,
             int unpack) {
            new (self)
                HoldingSession(plugin, wire_chunk_bytes, device, channels,
                               options_of(chunk_bytes, window_send, window_receive, gpu, unpack));
          },
          "plugin"_a, "wire_chunk_bytes"_a, "device"_a, "channels"_a, "chunk_bytes"_a,
          "window_send"_a, "window_receive"_a, "gpu"_a = -1,
          "unpack"_a = static_cast<int>(UnpackMode::kKernel), nb::keep_alive<1, 2>())
      .def(
          "listen",
          [](HoldingSession& s) { return bytes_of(unlocked([&] { return s.state->listen(""); })); })
      .def(
          "load_remote_conn_info",
          [](HoldingSession& s, const nb::bytes& info) {
            const std::string given = text_of(info);
            unlocked([&] { s.state->load_remote_conn_info("", given); });
          },
          "info"_a)
      .def(
          "accept", [](HoldingSession& s, double timeout_s) { s.state->accept("", timeout_s); },
          "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "connect", [](HoldingSession& s, double timeout_s) { s.state->connect("", timeout_s); },
          "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "establish",
          [](HoldingSession& s, double timeout_s) { s.state->establish("", timeout_s); },
          "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "register_memory",
          [](HoldingSession& s, nb::object array) {
            const auto bytes = nb::cast<ByteArray>(array);
            const uint64_t id = unlocked([&] {
              return s.state->register_memory(bytes.data(), bytes.size(), p2p::MemoryKind::kHost);
            });
            s.arrays.emplace(id, std::move(array));
            return id;
          },
          nb::sig("def register_memory(self, array: numpy.typing.NDArray[numpy.uint8]) -> int"),
          "array"_a)
      .def(
          "register_gpu_memory",
          [](HoldingSession& s, CudaSlots& memory, nb::object owner) {
            const uint64_t id = unlocked([&] {
              return s.state->register_memory(memory.data(), memory.bytes(),
                                              p2p::MemoryKind::kCuda);
            });
            s.arrays.emplace(id, std::move(owner));
            return id;
          },
          "memory"_a, "owner"_a, "As checked by CudaSlots; `owner` lives as long.")
      .def(
          "deregister_memory",
          [](HoldingSession& s, uint64_t memory) {
            unlocked([&] { s.state->deregister_memory(memory); });
            s.arrays.erase(memory);
          },
          "memory"_a)
      .def(
          "memory_bytes",
          [](HoldingSession& s, uint64_t memory) { return s.state->memory_bytes(memory); },
          "memory"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "create", [](HoldingSession& s) { return s.remote->link().create(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "post",
          [](HoldingSession& s, uint64_t transfer, Direction direction, uint64_t memory,
             uint64_t offset, uint64_t bytes) {
            const p2p::Piece piece{memory, offset, bytes};
            s.state->post(*s.remote, transfer, direction, &piece, 1);
          },
          "transfer"_a, "direction"_a, "memory"_a, "offset"_a, "bytes"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "release",
          [](HoldingSession& s, uint64_t transfer) { s.remote->link().release(transfer); },
          "transfer"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "is_complete",
          [](HoldingSession& s, uint64_t transfer) {
            return s.state->is_complete(*s.remote, transfer);
          },
          "transfer"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "wait",
          [](HoldingSession& s, uint64_t transfer, double timeout_s) {
            s.state->wait(*s.remote, transfer, timeout_s);
          },
          "transfer"_a, "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "close", [](HoldingSession& s) { s.state->close(); },
          nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tcpx
