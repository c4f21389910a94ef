// What a batch leaves for Python: where each flow stood, what ended it early, when it did what.
#include "bindings/batch.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "engine/clock.h"

namespace tcpx {
namespace {

constexpr const char* kKinds[] = {"send", "receive", "copy"};  // by FlowKind

FlowKind kind_of(const std::string& name) {
  for (int kind = 0; kind < 3; ++kind) {
    if (name == kKinds[kind]) return static_cast<FlowKind>(kind);
  }
  throw nb::value_error("no such kind of flow");
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
    case FaultKind::kGpu:
      return "gpu";
    case FaultKind::kHang:
      return "hang";
    default:
      return "none";
  }
}

}  // namespace

BatchFault put_into_words(const Fault& fault) {
  const bool waited = fault.kind == FaultKind::kStall || fault.kind == FaultKind::kHang;
  BatchFault words;
  words.kind = fault_name(fault.kind);
  words.call = fault.call;
  words.code = fault.code;
  words.failed_call = failed_call(fault);
  words.text = waited ? plugin_log::quote_since(fault.since_ns) : plugin_log::quote(fault.said);
  words.age_ns = waited ? now_ns() - fault.since_ns : int64_t{0};
  words.flow = fault.flow;
  words.iteration = fault.iteration;
  words.chunk = fault.chunk;
  words.bytes = fault.bytes;
  return words;
}

void bind_batch(nb::module_& m) {
  nb::class_<FlowReport>(m, "FlowReport")
      .def(
          "__init__",
          [](FlowReport* self, const std::string& kind, int peer, int lane, int channel, int window,
             uint64_t posted, uint64_t arrived, uint64_t completed, uint64_t bytes, bool finished,
             uint64_t oldest_iteration, uint32_t oldest_step, uint64_t oldest_chunk,
             uint64_t oldest_bytes, int64_t oldest_age_ns) {
            FlowPicture picture{kind_of(kind), channel, window, posted, arrived};
            picture.completed = completed;
            picture.bytes = bytes;
            picture.oldest_chunk = oldest_chunk;
            picture.oldest_bytes = oldest_bytes;
            picture.oldest_age_ns = oldest_age_ns;
            new (self) FlowReport{picture, peer, lane, oldest_iteration, oldest_step, finished};
          },
          nb::kw_only(), "kind"_a, "peer"_a, "lane"_a = 0, "channel"_a = 0, "window"_a, "posted"_a,
          "arrived"_a, "completed"_a, "bytes"_a, "finished"_a, "oldest_iteration"_a,
          "oldest_step"_a = 0, "oldest_chunk"_a = 0, "oldest_bytes"_a = 0, "oldest_age_ns"_a)
      .def_prop_ro("kind", [](const FlowReport& r) { return kKinds[static_cast<int>(r.kind)]; })
      .def_ro("peer", &FlowReport::peer)
      .def_ro("lane", &FlowReport::lane)
      .def_ro("channel", &FlowReport::channel)
      .def_ro("window", &FlowReport::window)
      .def_ro("posted", &FlowReport::posted)
      .def_ro("arrived", &FlowReport::arrived)
      .def_ro("flushing", &FlowReport::flushing)
      .def_ro("completed", &FlowReport::completed)
      .def_ro("bytes", &FlowReport::bytes)
      .def_ro("finished", &FlowReport::finished)
      .def_ro("oldest_iteration", &FlowReport::oldest_iteration)
      .def_ro("oldest_step", &FlowReport::oldest_step)
      .def_ro("oldest_chunk", &FlowReport::oldest_chunk)
      .def_ro("oldest_bytes", &FlowReport::oldest_bytes)
      .def_ro("oldest_age_ns", &FlowReport::oldest_age_ns);

  nb::class_<BatchFault>(m, "Fault")
      .def(
          "__init__",
          [](BatchFault* self, const std::string& kind, int code, const std::string& text,
             const std::string& call, const std::string& failed_call, int64_t age_ns, int flow,
             uint64_t iteration, uint64_t chunk, uint64_t bytes) {
            new (self) BatchFault{kind,   call, code,      failed_call, text,
                                  age_ns, flow, iteration, chunk,       bytes};
          },
          "kind"_a, "code"_a = 0, "text"_a = "", nb::kw_only(), "call"_a = "", "failed_call"_a = "",
          "age_ns"_a = 0, "flow"_a = -1, "iteration"_a = 0, "chunk"_a = 0, "bytes"_a = 0)
      .def_ro("kind", &BatchFault::kind)
      .def_ro("call", &BatchFault::call)
      .def_ro("code", &BatchFault::code)
      .def_ro("failed_call", &BatchFault::failed_call, "Of a plugin or of CUDA, with its code.")
      .def_ro("text", &BatchFault::text, "What the plugin said, or all of a baseline's failure.")
      .def_ro("age_ns", &BatchFault::age_ns)
      .def_ro("flow", &BatchFault::flow, "Its place in the picture.")
      .def_ro("iteration", &BatchFault::iteration)
      .def_ro("chunk", &BatchFault::chunk)
      .def_ro("bytes", &BatchFault::bytes);

  nb::class_<Stamps>(m, "Stamps")
      .def(
          "__init__",
          [](Stamps* self, int64_t start, bool late, const LongResult& end,
             const LongResult& send_done, const LongResult& receive_done) {
            new (self) Stamps{start, late, end, send_done, receive_done};
          },
          "start"_a, "late"_a, "end"_a, "send_done"_a, "receive_done"_a,
          "Of a loop that does not tell its sources apart.")
      .def_ro("start", &Stamps::start)
      .def_ro("late", &Stamps::late)
      .def_prop_ro(
          "end", [](const Stamps& s) { return s.end; }, nb::rv_policy::reference)
      .def_prop_ro(
          "send_done", [](const Stamps& s) { return s.send_done; }, nb::rv_policy::reference)
      .def_prop_ro(
          "receive_done", [](const Stamps& s) { return s.receive_done; }, nb::rv_policy::reference)
      .def_ro("sources", &Stamps::sources)
      .def_ro("source_lanes", &Stamps::source_lanes)
      .def_prop_ro(
          "source_done", [](const Stamps& s) { return s.source_done; }, nb::rv_policy::reference)
      .def_prop_ro(
          "flush_begun", [](const Stamps& s) { return s.flush_begun; }, nb::rv_policy::reference)
      .def_prop_ro("trace", [](const Stamps& s) { return s.trace; }, nb::rv_policy::reference);
}

}  // namespace tcpx
