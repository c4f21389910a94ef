// Python's view of the engine: the only file that knows Python. Exceptions stop here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>

#include "build_info.h"
#include "engine/clock.h"
#include "engine/connections.h"
#include "engine/drive.h"
#include "engine/program.h"
#include "engine/progress_thread.h"
#include "engine/signals.h"
#include "engine/transfer.h"
#include "memory/buffer.h"
#include "memory/payload.h"
#include "memory/policy.h"
#include "net/library.h"
#include "net/logger.h"
#include "peers/ceiling.h"
#include "peers/raw_links.h"
#include "peers/raw_loop.h"
#include "unpack/witness.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tcpx {
namespace {

using IntTable = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LongTable = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using LongVector = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LongResult = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

// An array of our own for Python: `stamps` are overwritten by the next batch.
LongResult copied(const int64_t* data, size_t count) {
  auto* copy = new int64_t[count > 0 ? count : 1];
  std::copy(data, data + count, copy);
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
  return LongResult(copy, {count}, owner);
}

std::vector<PayloadSpan> spans_of(const LongTable& table) {
  if (table.shape(1) != 4) throw nb::value_error("spans have 4 columns");
  std::vector<PayloadSpan> spans(table.shape(0));
  for (size_t i = 0; i < spans.size(); ++i) {
    spans[i] = {static_cast<uint64_t>(table(i, 0)), static_cast<uint64_t>(table(i, 1)),
                static_cast<uint32_t>(table(i, 2)), static_cast<uint64_t>(table(i, 3))};
  }
  return spans;
}

// A host buffer cut into slots, as a row wants it.
class SlotBuffer {
 public:
  explicit SlotBuffer(size_t bytes) : buffer_(bytes) {}

  void cut(size_t used, size_t guard, size_t stride, size_t count) {
    if (used + guard > stride || stride * count > buffer_.bytes()) {
      throw nb::value_error("slots do not fit the buffer");
    }
    slots_ = {buffer_.data(), stride, used, guard};
    count_ = count;
  }
  HostBuffer& buffer() { return buffer_; }
  const Slots& slots() const { return slots_; }
  void check(size_t first, size_t count) const {
    if (first + count > count_) throw nb::value_error("no such slots");
  }
  SlotBase base() const { return {slots_.base, slots_.stride}; }

 private:
  HostBuffer buffer_;
  Slots slots_{};
  size_t count_ = 0;
};

constexpr int kUnpackInPlace = -1;  // the plugin delivers where the receive was posted

// What runs batches on a thread of its own: the engine, or a native peer beside it.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual BatchLoop& loop() = 0;
  virtual void load(Program program, const SlotBase* buffers) = 0;
  virtual uint64_t most_chunk_bytes() const { return UINT32_MAX; }

  std::vector<BlockTable> blocks_ = std::vector<BlockTable>(kBuffers);
  std::optional<ProgressThread> thread_;  // a derived class makes it and ends it
};

// The pieces of a rank's engine, in the order in which they may be destroyed.
class Engine : public Runner {
 public:
  Engine(Plugin& plugin, int device, int window_send, int window_receive, int spins_before_yield,
         int unpack, bool witness)
      : plugin_(plugin),
        connections_(plugin.net(), device),
        unpacker_(unpack == kUnpackInPlace ? nullptr
                                           : make_cpu_unpacker(static_cast<UnpackMode>(unpack))),
        witness_(witness && unpacker_ ? new UnpackWitness(std::move(unpacker_)) : nullptr),
        driver_(plugin.net(), connections_, {window_send, window_receive, spins_before_yield},
                witness_ ? witness_.get() : unpacker_.get()) {
    thread_.emplace(driver_);
  }
  ~Engine() override { thread_.reset(); }
  BatchLoop& loop() override { return driver_; }
  uint64_t most_chunk_bytes() const override { return kMaxChunkBytes; }
  void load(Program program, const SlotBase* buffers) override {
    driver_.load(std::move(program), buffers);
  }

  Plugin& plugin_;
  Connections connections_;
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<UnpackWitness> witness_;  // has the unpacker, where there is one
  Driver driver_;
};

class RawPeer : public Runner {
 public:
  RawPeer(const RawSettings& settings, int spins_before_yield, bool one_slot)
      : links_(settings), loop_(links_, spins_before_yield), one_slot_(one_slot) {
    thread_.emplace(loop_);
  }
  ~RawPeer() override { thread_.reset(); }
  BatchLoop& loop() override { return loop_; }
  void load(Program program, const SlotBase* buffers) override {
    SlotBase bases[kBuffers];
    std::copy(buffers, buffers + kBuffers, bases);
    for (SlotBase& base : bases) base.stride *= one_slot_ ? 0 : 1;
    loop_.load(std::move(program), bases);
  }

  RawLinks links_;
  RawLoop loop_;
  const bool one_slot_;  // every iteration in the first slot: in the cache, and not to be checked
  TcpSockets sockets_;
};

std::vector<RawLinks::Way> ways_of(const std::vector<std::pair<int, int>>& pairs) {
  std::vector<RawLinks::Way> ways;
  for (const auto& [peer, lane] : pairs) ways.push_back({peer, lane});
  return ways;
}

nb::dict totals_of(const TcpSockets& sockets) {
  const SocketTotals t = sockets.totals();
  nb::dict d;
  d["sent"] = t.sent;
  d["received"] = t.received;
  d["retransmits"] = t.retransmits;
  d["rtt_us"] = t.rtt_us;
  d["readable"] = t.sockets;
  d["count"] = sockets.count();
  d["congestion_control"] = sockets.congestion_control();
  return d;
}

using ByteArray = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A session, and the arrays that may not go before its comms are closed.
class SessionCore {
 public:
  SessionCore(Plugin& plugin, int device, const TransferLimits& limits)
      : session_(plugin.net(), device, limits) {}

  std::map<int, ByteArray> arrays_;
  PeerSession session_;
};

// Lets Python run its handlers of signals, which may raise.
void run_signal_handlers() {
  nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::list picture_of(const std::vector<TransferPicture>& picture) {
  nb::list rows;
  for (const TransferPicture& p : picture) {
    nb::dict row;
    row["kind"] = p.direction == Direction::kSend ? "send" : "receive";
    row["channel"] = p.channel;
    row["window"] = p.window;
    row["posted"] = p.posted;
    row["finished"] = p.finished;
    row["bytes"] = p.bytes;
    row["queued"] = p.queued;
    row["oldest_transfer"] = p.oldest_transfer;
    row["oldest_message"] = p.oldest_message;
    row["oldest_chunk"] = p.oldest_chunk;
    row["oldest_bytes"] = p.oldest_bytes;
    row["oldest_age_ns"] = p.has_oldest ? p.oldest_age_ns : -1;
    rows.append(row);
  }
  return rows;
}

const char* kind_name(FlowKind kind) {
  switch (kind) {
    case FlowKind::kSend:
      return "send";
    case FlowKind::kReceive:
      return "receive";
    default:
      return "copy";
  }
}

const char* fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kPlugin:
      return "plugin";
    case FaultKind::kStall:
      return "stall";
    case FaultKind::kSize:
      return "size";
    case FaultKind::kInterrupted:
      return "interrupted";
    case FaultKind::kTimeout:
      return "timeout";
    case FaultKind::kStopped:
      return "stopped";
    case FaultKind::kSocket:
      return "socket";
    default:
      return "none";
  }
}

// What the witness of an engine has seen since the last time, each receive with its comm.
nb::list sights_of(Engine& engine) {
  nb::list rows;
  if (!engine.witness_) return rows;
  for (const UnpackWitness::Sight& sight : engine.witness_->take()) {
    nb::dict row;
    for (const auto& comm : engine.connections_.comms()) {
      const NetUnpackDevice* device = comm->unpack_queue();
      if (device == nullptr) continue;
      const auto* const first = &device->meta->mem[0][0];
      if (sight.slot < first || sight.slot >= first + kNetUnpackSlots * kNetUnpackFragments) {
        continue;
      }
      row["peer"] = comm->peer;
      row["channel"] = comm->channel;
      row["slot"] = (sight.slot - first) / kNetUnpackFragments;
    }
    row["count"] = sight.count;
    nb::list fragments;
    for (const NetUnpackFragment& f : sight.fragments) {
      fragments.append(nb::make_tuple(f.src_off, f.len, f.dst_off));
    }
    row["fragments"] = fragments;
    row["probe"] = nb::bytes(sight.probe.data(), sight.probe.size());
    rows.append(row);
  }
  return rows;
}

nb::list report_of(const std::vector<FlowReport>& picture) {
  nb::list rows;
  for (const FlowReport& r : picture) {
    nb::dict row;
    row["kind"] = kind_name(r.kind);
    row["peer"] = r.peer;
    row["lane"] = r.lane;
    row["channel"] = r.channel;
    row["window"] = r.window;
    row["posted"] = r.posted;
    row["completed"] = r.completed;
    row["bytes"] = r.bytes;
    row["finished"] = r.finished;
    row["oldest_iteration"] = r.oldest_iteration;
    row["oldest_step"] = r.oldest_step;
    row["oldest_chunk"] = r.oldest_chunk;
    row["oldest_bytes"] = r.oldest_bytes;
    row["oldest_age_ns"] = r.oldest_age_ns;
    rows.append(row);
  }
  return rows;
}

nb::dict properties_of(Plugin& plugin, int device) {
  NetProperties p;
  const int code = plugin.net().properties(device, &p);
  if (code != kNetSuccess) {
    throw PluginError("getProperties", code, "device " + std::to_string(device));
  }
  nb::dict d;
  d["name"] = p.name;
  d["pci_path"] = p.pci_path;
  d["guid"] = p.guid;
  d["ptr_support"] = p.ptr_support;
  d["speed_mbps"] = p.speed_mbps;
  d["port"] = p.port;
  d["latency_us"] = p.latency_us;
  d["max_comms"] = p.max_comms;
  d["max_recvs"] = p.max_recvs;
  d["device_type"] = p.device_type;
  d["device_version"] = p.device_version;
  return d;
}

int count_devices(Plugin& plugin) {
  int count = 0;
  const int code = plugin.net().devices(&count);
  if (code != kNetSuccess) throw PluginError("devices", code, "");
  return count;
}

}  // namespace
}  // namespace tcpx

NB_MODULE(_native, m) {
  using namespace tcpx;
  nb::set_leak_warnings(false);  // an aborting run leaves without ceremony

  nb::exception<LibraryError>(m, "LibraryError");
  nb::exception<PluginError>(m, "PluginError");
  nb::exception<ConnectTimeout>(m, "ConnectTimeout");
  nb::exception<Interrupt>(m, "Interrupt");

  nb::dict build;
  build["compiler"] = kBuildCompiler;
  build["type"] = kBuildType;
  build["flags"] = kBuildFlags;
  m.attr("BUILD") = build;
  m.attr("MAX_CHUNK_BYTES") = kMaxChunkBytes;
  m.attr("MAX_REQUESTS") = static_cast<int>(kNetMaxRequests);
  m.attr("HANDLE_BYTES") = static_cast<int>(kNetHandleBytes);
  m.attr("PTR_HOST") = static_cast<int>(kNetPtrHost);
  m.attr("PTR_CUDA") = static_cast<int>(kNetPtrCuda);
  m.attr("DEVICE_UNPACK") = static_cast<int>(kNetDeviceUnpack);
  m.attr("UNPACK_IN_PLACE") = kUnpackInPlace;
  m.attr("UNPACK_KERNEL") = static_cast<int>(UnpackMode::kKernel);
  m.attr("UNPACK_COPIES") = static_cast<int>(UnpackMode::kCopies);
  m.attr("UNPACK_HOST") = static_cast<int>(UnpackMode::kHost);
  m.attr("UNPACK_NONE") = static_cast<int>(UnpackMode::kNone);

  m.def("now_ns", &now_ns, "CLOCK_MONOTONIC in nanoseconds, shared by all processes of a host.");
  m.def("bind_memory_to", &bind_memory_to, "node"_a,
        "Memory that this thread and later ones touch first lies on this NUMA node; False where "
        "the kernel refuses.");
  m.def("install_signal_handlers", &install_signal_handlers);
  m.def("restore_signal_handlers", &restore_signal_handlers);
  m.def("stop_signal", &stop_signal);
  m.def("take_report_request", &take_report_request, "True once after a SIGUSR1.");
  m.def("plugin_log_lines", &plugin_log::recent_lines);
  m.def("plugin_log_warnings", &plugin_log::warnings);
  m.def("print_plugin_log", &plugin_log::set_print_level, "level"_a);
  m.def(
      "payload",
      [](size_t bytes, uint64_t seed, uint32_t sender, uint64_t iteration, uint64_t offset) {
        std::vector<uint8_t> out(bytes);
        payload_generate(out.data(), bytes, payload_key(seed, sender, iteration), offset);
        return nb::bytes(out.data(), bytes);
      },
      "bytes"_a, "seed"_a, "sender"_a, "iteration"_a, "offset"_a,
      "The bytes that `sender` sends in `iteration` from `offset` of its buffer on.");

  nb::class_<Plugin>(m, "Plugin")
      .def(nb::init<const std::string&>(), "path"_a)
      .def_prop_ro("path", &Plugin::path)
      .def_prop_ro("abi_versions", &Plugin::abi_versions)
      .def_prop_ro("abi", [](Plugin& p) { return p.net().abi(); })
      .def_prop_ro("name", [](Plugin& p) { return std::string(p.net().name()); })
      .def("init", &Plugin::init, nb::call_guard<nb::gil_scoped_release>())
      .def("devices", &count_devices)
      .def("properties", &properties_of, "device"_a);

  nb::class_<SlotBuffer>(m, "SlotBuffer")
      .def(nb::init<size_t>(), "bytes"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("bytes", [](SlotBuffer& b) { return b.buffer().bytes(); })
      .def("cut", &SlotBuffer::cut, "used"_a, "guard"_a, "stride"_a, "count"_a)
      .def("view",
           [](SlotBuffer& b) {
             return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(b.buffer().data(),
                                                                 {b.buffer().bytes()}, nb::find(b));
           })
      .def(
          "fill",
          [](SlotBuffer& b, size_t first, size_t count, uint64_t iteration, uint64_t seed,
             const LongTable& spans) {
            const auto s = spans_of(spans);
            b.check(first, count);
            nb::gil_scoped_release release;
            fill_slots(b.slots(), first, count, iteration, seed, s.data(), s.size());
          },
          "first"_a, "count"_a, "iteration"_a, "seed"_a, "spans"_a)
      .def(
          "poison",
          [](SlotBuffer& b, size_t first, size_t count, uint64_t iteration, uint64_t seed,
             const LongTable& spans) {
            const auto s = spans_of(spans);
            b.check(first, count);
            nb::gil_scoped_release release;
            poison_slots(b.slots(), first, count, iteration, seed, s.data(), s.size());
          },
          "first"_a, "count"_a, "iteration"_a, "seed"_a, "spans"_a)
      .def(
          "verify",
          [](SlotBuffer& b, size_t first, size_t count, uint64_t iteration, uint64_t seed,
             const LongTable& spans) {
            const auto s = spans_of(spans);
            b.check(first, count);
            SlotVerdict v;
            {
              nb::gil_scoped_release release;
              v = verify_slots(b.slots(), first, count, iteration, seed, s.data(), s.size());
            }
            nb::dict d;
            d["wrong"] = v.wrong;
            d["guard_wrong"] = v.guard_wrong;
            if (v.has_first) {
              d["iteration"] = iteration + (v.slot - first);
              d["offset"] = v.offset;
              d["sender"] = v.sender == UINT32_MAX ? -1 : static_cast<int64_t>(v.sender);
              d["expected"] = v.expected;
              d["found"] = v.found;
            }
            return d;
          },
          "first"_a, "count"_a, "iteration"_a, "seed"_a, "spans"_a);

  nb::class_<Runner>(m, "Runner")
      .def(
          "set_blocks",
          [](Runner& e, int buffer, const LongVector& offsets, const LongVector& lengths) {
            if (buffer < 0 || buffer >= kBuffers || offsets.shape(0) != lengths.shape(0)) {
              throw nb::value_error("bad block table");
            }
            BlockTable& table = e.blocks_[buffer];
            table.offsets.assign(offsets.data(), offsets.data() + offsets.shape(0));
            table.lengths.assign(lengths.data(), lengths.data() + lengths.shape(0));
          },
          "buffer"_a, "offsets"_a, "lengths"_a)
      .def(
          "load",
          [](Runner& e, const IntTable& table, uint64_t chunk_bytes, int channels,
             const std::vector<SlotBuffer*>& buffers, uint64_t iterations) {
            if (table.shape(1) != kStepColumns) throw nb::value_error("a step has 12 columns");
            if (chunk_bytes < 1 || chunk_bytes > e.most_chunk_bytes() || channels < 1) {
              throw nb::value_error("bad chunk or channels");
            }
            SlotBase bases[kBuffers];
            for (size_t i = 0; i < buffers.size() && i < kBuffers; ++i) {
              if (buffers[i] != nullptr) bases[i] = buffers[i]->base();
            }
            e.load(compile(table.data(), table.shape(0), e.blocks_.data(), chunk_bytes, channels),
                   bases);
            e.loop().reserve(iterations);
          },
          "table"_a, "chunk_bytes"_a, "channels"_a, "buffers"_a, "iterations"_a)
      .def(
          "pin", [](Runner& e, int cpu) { return e.thread_->pin(cpu); }, "cpu"_a)
      .def(
          "start",
          [](Runner& e, uint64_t first_slot, uint64_t iterations, int64_t start_ns,
             int64_t stall_ns, int64_t end_by_ns) {
            e.thread_->start({first_slot, iterations, start_ns, stall_ns, end_by_ns});
          },
          "first_slot"_a, "iterations"_a, "start_ns"_a, "stall_ns"_a, "end_by_ns"_a)
      .def(
          "wait",
          [](Runner& e, double seconds) {
            return e.thread_->wait(seconds) != ProgressThread::State::kRunning;
          },
          "seconds"_a, nb::call_guard<nb::gil_scoped_release>(),
          "True when the batch has ended; False after `seconds`.")
      .def("request_stop", [](Runner& e) { e.loop().request_stop(); })
      .def(
          "idle_ns", [](Runner& e) { return e.loop().idle_ns(); },
          "How long the batch under way has made no progress.")
      .def(
          "stamps",
          [](Runner& e, uint64_t iterations) {
            const BatchStamps& s = e.loop().stamps();
            if (iterations > s.end.size()) throw nb::value_error("no such iterations");
            nb::dict d;
            d["start"] = s.start;
            d["late"] = s.late;
            d["end"] = copied(s.end.data(), iterations);
            d["send_done"] = copied(s.send_done.data(), iterations);
            d["receive_done"] = copied(s.receive_done.data(), iterations);
            return d;
          },
          "iterations"_a)
      .def(
          "thread_id", [](Runner& e) { return e.thread_->thread_id(); },
          "The kernel's number of the driving thread.")
      .def(
          "cpus_seen",
          [](Runner& e) {
            nb::list cpus;
            const CpuBits& bits = e.loop().cpus_seen();
            for (size_t cpu = 0; cpu < 64 * bits.size(); ++cpu) {
              if (bits[cpu / 64] >> (cpu % 64) & 1) cpus.append(cpu);
            }
            return cpus;
          },
          "CPUs on which the driving thread was seen in the last batch.")
      .def("cpu_time",
           [](Runner& e) {
             const auto t = e.thread_->cpu_time();
             return nb::make_tuple(t.user_ns, t.system_ns, t.others_ns);
           })
      .def("fault",
           [](Runner& e) -> nb::object {
             const Fault& f = e.loop().fault();
             if (f.kind == FaultKind::kNone) return nb::none();
             nb::dict d;
             d["kind"] = fault_name(f.kind);
             d["call"] = f.call;
             d["code"] = f.code;
             d["code_name"] = result_name(f.code);
             d["flow"] = f.flow;
             d["iteration"] = f.iteration;
             d["chunk"] = f.chunk;
             d["step"] = f.step;
             return d;
           })
      .def("take_picture_ready", [](Runner& e) { return e.loop().take_picture_ready(); })
      .def("picture", [](Runner& e) { return report_of(e.loop().picture()); });

  nb::class_<Engine, Runner>(m, "Engine")
      .def(nb::init<Plugin&, int, int, int, int, int, bool>(), "plugin"_a, "device"_a,
           "window_send"_a, "window_receive"_a, "spins_before_yield"_a, "unpack"_a = kUnpackInPlace,
           "witness"_a = false, nb::keep_alive<1, 2>())
      .def(
          "listen",
          [](Engine& e, int peer, int lane, int channel) {
            const auto handle = e.connections_.listen(peer, lane, channel);
            return nb::bytes(handle.data(), handle.size());
          },
          "peer"_a, "lane"_a, "channel"_a)
      .def(
          "add_send",
          [](Engine& e, int peer, int lane, int channel, const nb::bytes& handle) {
            if (handle.size() != kNetHandleBytes) throw nb::value_error("a handle has 128 bytes");
            e.connections_.add_send(peer, lane, channel,
                                    reinterpret_cast<const uint8_t*>(handle.c_str()));
          },
          "peer"_a, "lane"_a, "channel"_a, "handle"_a)
      .def(
          "establish", [](Engine& e, double timeout_s) { e.connections_.establish(timeout_s); },
          "timeout_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "register_buffer",
          [](Engine& e, int buffer, SlotBuffer& memory, int pointer) {
            if (buffer < 0 || buffer >= kBuffers) throw nb::value_error("no such buffer");
            nb::gil_scoped_release release;
            HostBuffer& host = memory.buffer();
            e.connections_.register_buffer(buffer, host.data(), host.capacity(), pointer);
          },
          "buffer"_a, "memory"_a, "pointer"_a = static_cast<int>(kNetPtrHost),
          nb::keep_alive<1, 3>())
      .def("setup_times",
           [](Engine& e) {
             nb::list rows;
             for (const auto& c : e.connections_.comms()) {
               rows.append(nb::make_tuple(c->direction == Direction::kSend ? "send" : "receive",
                                          c->peer, c->lane, c->channel, c->listen_ns,
                                          c->establish_ns, c->register_ns));
             }
             return rows;
           })
      .def(
          "close", [](Engine& e) { e.connections_.close(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("sockets", [](Engine& e) { return totals_of(e.connections_.sockets()); });

  nb::class_<RawPeer, Runner>(m, "RawPeer")
      .def(
          "__init__",
          [](RawPeer* self, const std::string& interface, const std::string& congestion,
             int send_buffer_bytes, int streams, bool two_way, int spins_before_yield,
             bool one_slot) {
            if (streams < 1) throw nb::value_error("a peer needs a stream");
            new (self) RawPeer({interface, congestion, send_buffer_bytes, streams, two_way},
                               spins_before_yield, one_slot);
          },
          "interface"_a, "congestion"_a, "send_buffer_bytes"_a, "streams"_a, "two_way"_a,
          "spins_before_yield"_a, "one_slot"_a = false)
      .def("listen",
           [](RawPeer& p) {
             const std::string address = p.links_.listen();
             return nb::bytes(address.data(), address.size());
           })
      .def(
          "establish",
          [](RawPeer& p, int rank, const std::vector<nb::bytes>& addresses,
             const std::vector<std::pair<int, int>>& sends,
             const std::vector<std::pair<int, int>>& receives, double timeout_s) {
            std::vector<std::string> texts;
            for (const nb::bytes& a : addresses) texts.emplace_back(a.c_str(), a.size());
            nb::gil_scoped_release release;
            p.links_.establish(rank, texts, ways_of(sends), ways_of(receives), timeout_s);
            p.sockets_ = TcpSockets(p.links_.sockets());
          },
          "rank"_a, "addresses"_a, "sends"_a, "receives"_a, "timeout_s"_a,
          "`sends` and `receives` are (peer, lane).")
      .def("sockets", [](RawPeer& p) { return totals_of(p.sockets_); });

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

  m.def(
      "time_copies",
      [](size_t bytes, size_t footprint, int rounds) {
        if (bytes < 1 || rounds < 1) throw nb::value_error("nothing to copy");
        std::vector<int64_t> times;
        {
          nb::gil_scoped_release release;
          times = time_copies(bytes, footprint, rounds);
        }
        return copied(times.data(), times.size());
      },
      "bytes"_a, "footprint"_a, "rounds"_a, "Nanoseconds of each of `rounds` memory copies.");
  m.def("clock_cost", [] {
    const ClockCost cost = clock_cost();
    return nb::make_tuple(cost.ns_a_call, cost.resolution_ns);
  });

  m.def("unpack_sights", &sights_of, "engine"_a,
        "What an engine with a witness found in its descriptor queues since the last call.");

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

  nb::class_<SessionCore>(m, "SessionCore")
      .def(
          "__init__",
          [](SessionCore* self, Plugin& plugin, int device, int channels, uint64_t chunk_bytes,
             int window_send, int window_receive) {
            const TransferLimits limits{channels, chunk_bytes, window_send, window_receive};
            new (self) SessionCore(plugin, device, limits);
          },
          "plugin"_a, "device"_a, "channels"_a, "chunk_bytes"_a, "window_send"_a,
          "window_receive"_a, nb::keep_alive<1, 2>())
      .def(
          "listen",
          [](SessionCore& s, int channel) {
            const auto handle = s.session_.listen(channel);
            return nb::bytes(handle.data(), handle.size());
          },
          "channel"_a)
      .def(
          "add_send",
          [](SessionCore& s, int channel, const nb::bytes& handle) {
            if (handle.size() != kNetHandleBytes) throw nb::value_error("a handle has 128 bytes");
            s.session_.add_send(channel, reinterpret_cast<const uint8_t*>(handle.c_str()));
          },
          "channel"_a, "handle"_a)
      .def(
          "establish",
          [](SessionCore& s, double timeout_s, std::optional<Direction> until) {
            nb::gil_scoped_release release;
            s.session_.establish(timeout_s, until, run_signal_handlers);
          },
          "timeout_s"_a, "until"_a.none())
      .def(
          "register_memory",
          [](SessionCore& s, const ByteArray& array) {
            const int id = s.session_.register_memory(array.data(), array.size(), kNetPtrHost);
            s.arrays_.emplace(id, array);
            return id;
          },
          "array"_a)
      .def(
          "deregister_memory",
          [](SessionCore& s, int memory) {
            s.session_.deregister_memory(memory);
            s.arrays_.erase(memory);
          },
          "memory"_a)
      .def("create", [](SessionCore& s) { return s.session_.create(); })
      .def(
          "post",
          [](SessionCore& s, uint64_t transfer, Direction direction, int memory, uint64_t offset,
             uint64_t bytes) { s.session_.post(transfer, direction, memory, offset, bytes); },
          "transfer"_a, "direction"_a, "memory"_a, "offset"_a, "bytes"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "release", [](SessionCore& s, uint64_t transfer) { s.session_.release(transfer); },
          "transfer"_a)
      .def(
          "poll", [](SessionCore& s, uint64_t transfer) { return s.session_.poll(transfer); },
          "transfer"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "wait",
          [](SessionCore& s, uint64_t transfer, double patience_s) {
            return s.session_.wait(transfer, static_cast<int64_t>(patience_s * 1e9),
                                   run_signal_handlers);
          },
          "transfer"_a, "patience_s"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("fault",
           [](SessionCore& s) -> nb::object {
             const TransferFault f = s.session_.fault();
             if (f.kind == TransferFault::Kind::kNone) return nb::none();
             nb::dict d;
             d["kind"] = f.kind == TransferFault::Kind::kPlugin ? "plugin" : "size";
             d["call"] = f.call;
             d["code"] = f.code;
             d["code_name"] = result_name(f.code);
             d["direction"] = f.direction == Direction::kSend ? "send" : "receive";
             d["channel"] = f.channel;
             d["transfer"] = f.transfer;
             d["message"] = f.message;
             d["chunk"] = f.chunk;
             d["bytes"] = f.bytes;
             return d;
           })
      .def("picture", [](SessionCore& s) { return picture_of(s.session_.picture()); })
      .def(
          "close", [](SessionCore& s) { s.session_.close(); },
          nb::call_guard<nb::gil_scoped_release>());

  m.def(
      "probe",
      [](const std::string& path) {
        Plugin plugin(path);
        nb::dict d;
        d["path"] = plugin.path();
        d["abi_versions"] = plugin.abi_versions();
        d["abi"] = plugin.net().abi();
        d["name"] = std::string(plugin.net().name());
        return d;
      },
      "path"_a, "What a file offers, without initialising it. Raises LibraryError.");
}
