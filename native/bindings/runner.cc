#include "bindings/runner.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/batch.h"
#include "bindings/memory.h"
#include "engine/connections.h"
#include "reduce/reduce.h"

namespace tcpx {
void bind_runner(nb::module_& m) {
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
          "add_turn",
          [](Runner& e, const IntTable& table) {
            if (table.shape(1) != kStepColumns) throw nb::value_error("a step has 12 columns");
            e.turns_.emplace_back(
                std::vector<int32_t>(table.data(), table.data() + table.shape(0) * kStepColumns),
                e.blocks_);
          },
          "table"_a,
          "Of a row whose iterations differ: what one of them does, by the blocks as they are set. "
          "`load` has the last one; slot k has the one of number k, and so on in turn.")
      .def(
          "load",
          [](Runner& e, const IntTable& table, uint64_t chunk_bytes, int channels,
             const std::vector<SlotMemory*>& buffers, uint64_t iterations, int dtype, int redop,
             double factor) {
            if (table.shape(1) != kStepColumns) throw nb::value_error("a step has 12 columns");
            if (chunk_bytes < 1 || chunk_bytes > e.most_chunk_bytes() || channels < 1) {
              throw nb::value_error("bad chunk or channels");
            }
            SlotBase bases[kBuffers];
            for (size_t i = 0; i < buffers.size() && i < kBuffers; ++i) {
              if (buffers[i] != nullptr) bases[i] = base_of(*buffers[i]);
            }
            const auto before = std::exchange(e.turns_, {});
            std::vector<Turn> turns;
            for (const auto& [steps, blocks] : before) {
              turns.push_back({steps.data(), steps.size() / kStepColumns, blocks.data()});
            }
            turns.push_back({table.data(), table.shape(0), e.blocks_.data()});
            Program whole =
                compile(turns, chunk_bytes, channels, make_arithmetic(dtype, redop, factor));
            const nb::gil_scoped_release release;  // the plugin may be asked for memory
            e.load(split(std::move(whole), e.team_->size()), bases);
            e.team_->loaded();
            e.team_->reserve(iterations);
          },
          // None is a buffer that the schedule leaves out: the type of a pointer does not say so.
          nb::sig("def load(self, table: numpy.typing.NDArray[numpy.int32], chunk_bytes: int, "
                  "channels: int, buffers: collections.abc.Sequence[SlotMemory | None], "
                  "iterations: int, dtype: int = 1, redop: int = 0, factor: float = 1.0) -> None"),
          "table"_a, "chunk_bytes"_a, "channels"_a, "buffers"_a, "iterations"_a,
          "dtype"_a = static_cast<int>(kUint8), "redop"_a = static_cast<int>(kSum),
          "factor"_a = 1.0,
          "The row to come. Steps that compute do so with elements of `dtype`, by `redop`, and "
          "scale by `factor`: numbers of tcpx_mpi/schedule/elements.py.")
      .def(
          "pin", [](Runner& e, const std::vector<int>& cpus) { return e.team_->pin(cpus); },
          "cpus"_a, "The first thread to the first CPU, and so on.")
      .def(
          "arm", [](Runner& e, uint64_t iterations) { e.team_->arm(iterations); }, "iterations"_a,
          "Readies the next batch, of so many iterations, before its start is agreed.")
      .def(
          "start",
          [](Runner& e, uint64_t first_slot, uint64_t iterations, int64_t start_ns,
             int64_t stall_ns, int64_t end_by_ns) {
            e.team_->start({first_slot, iterations, start_ns, stall_ns, end_by_ns});
          },
          "first_slot"_a, "iterations"_a, "start_ns"_a, "stall_ns"_a, "end_by_ns"_a)
      .def(
          "wait", [](Runner& e, double seconds) { return e.team_->wait(seconds); }, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "True when the batch has ended; False after `seconds`.")
      .def("request_stop", [](Runner& e) { e.team_->request_stop(); })
      .def(
          "idle_ns", [](Runner& e) { return e.team_->idle_ns(); },
          "How long the batch under way has made no progress.")
      .def(
          "stuck_ns", [](Runner& e) { return e.team_->stuck_ns(); },
          "How long it has been in one call of the plugin.")
      .def(
          "give_up", [](Runner& e) { e.team_->give_up(); },
          "A batch that is stuck is over: its fault says in which call.")
      .def(
          "stamps",
          [](Runner& e, uint64_t iterations) {
            if (iterations > e.team_->reserved()) throw nb::value_error("no such iterations");
            const BatchStamps s = e.team_->stamps(iterations);
            const std::vector<int>& sources = e.team_->sources();
            const std::vector<ChunkTrace> trace = e.team_->trace();
            return Stamps{
                s.start,
                s.late,
                copied(s.end.data(), iterations),
                copied(s.send_done.data(), iterations),
                copied(s.receive_done.data(), iterations),
                sources,
                e.team_->source_lanes(),
                copied(s.source_done.data(), iterations * sources.size()),
                copied(trace.empty() ? nullptr : &trace.front().iteration,
                       trace.size() * kTraceColumns),
                copied(s.flush_begun.data(), s.flush_begun.empty() ? 0 : iterations),
            };
          },
          "iterations"_a)
      .def(
          "thread_id", [](Runner& e) { return e.team_->thread_ids().front(); },
          "The kernel's number of the driving thread, the first of several.")
      .def(
          "thread_ids",
          [](Runner& e) {
            List<int> ids;
            for (const int id : e.team_->thread_ids()) ids.append(id);
            return ids;
          },
          "Those of all driving threads.")
      .def(
          "cpus_seen",
          [](Runner& e) {
            List<int> cpus;
            const CpuBits bits = e.team_->cpus_seen();
            for (size_t cpu = 0; cpu < 64 * bits.size(); ++cpu) {
              if (bits[cpu / 64] >> (cpu % 64) & 1) cpus.append(cpu);
            }
            return cpus;
          },
          "CPUs on which the driving thread, the first of several, was seen in the last batch.")
      .def("cpu_time",
           [](Runner& e) -> std::tuple<int64_t, int64_t, int64_t> {
             const auto t = e.team_->cpu_time();
             return std::make_tuple(t.user_ns, t.system_ns, t.others_ns);
           })
      .def("fault",
           [](Runner& e) -> std::optional<BatchFault> {
             const Fault fault = e.team_->fault();
             if (fault.kind == FaultKind::kNone) return std::nullopt;
             return put_into_words(fault);
           })
      .def("take_picture_ready", [](Runner& e) { return e.team_->take_picture_ready(); })
      .def("picture", [](Runner& e) { return e.team_->picture(); });
}

}  // namespace tcpx
