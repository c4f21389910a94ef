#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "baselines/raw_links.h"
#include "baselines/raw_loop.h"
#include "bindings/bind.h"
#include "bindings/runner.h"
#include "bindings/sockets.h"
#include "machine/ceiling.h"

namespace tcpx {
namespace {

class RawBaseline : public Runner {
 public:
  RawBaseline(const RawSettings& settings, int spins_before_yield, bool one_slot, int threads)
      : links_(settings), one_slot_(one_slot) {
    std::vector<BatchLoop*> loops;
    for (int i = 0; i < threads; ++i) {
      loops_.push_back(std::make_unique<RawLoop>(links_, spins_before_yield));
      loops.push_back(loops_.back().get());
    }
    team_.emplace(std::move(loops), -1);
  }
  ~RawBaseline() override { team_.reset(); }
  void load(std::vector<Program> programs, const SlotBase* buffers) override {
    SlotBase bases[kBuffers];
    std::copy(buffers, buffers + kBuffers, bases);
    for (SlotBase& base : bases) base.stride *= one_slot_ ? 0 : 1;
    for (size_t i = 0; i < loops_.size(); ++i) loops_[i]->load(std::move(programs[i]), bases);
  }

  RawLinks links_;
  std::vector<std::unique_ptr<RawLoop>> loops_;
  const bool one_slot_;  // every iteration in the first slot: in the cache, and not to be checked
  TcpSockets sockets_;
};

std::vector<RawLinks::Neighbour> neighbours_of(const std::vector<std::pair<int, int>>& pairs) {
  std::vector<RawLinks::Neighbour> neighbours;
  for (const auto& [peer, lane] : pairs) neighbours.push_back({peer, lane});
  return neighbours;
}

}  // namespace

void bind_baselines(nb::module_& m) {
  nb::class_<RawBaseline, Runner>(m, "RawBaseline")
      .def(
          "__init__",
          [](RawBaseline* self, const std::string& interface, const std::string& congestion,
             int send_buffer_bytes, int streams, bool two_way, int spins_before_yield,
             bool one_slot, int threads) {
            if (streams < 1 || threads < 1) throw nb::value_error("a peer needs a stream");
            new (self) RawBaseline({interface, congestion, send_buffer_bytes, streams, two_way},
                                   spins_before_yield, one_slot, threads);
          },
          "interface"_a, "congestion"_a, "send_buffer_bytes"_a, "streams"_a, "two_way"_a,
          "spins_before_yield"_a, "one_slot"_a = false, "threads"_a = 1)
      .def("listen",
           [](RawBaseline& b) {
             const std::string address = b.links_.listen();
             return nb::bytes(address.data(), address.size());
           })
      .def(
          "establish",
          [](RawBaseline& b, int rank, const std::vector<nb::bytes>& addresses,
             const std::vector<std::pair<int, int>>& sends,
             const std::vector<std::pair<int, int>>& receives, double timeout_s) {
            std::vector<std::string> texts;
            for (const nb::bytes& a : addresses) texts.emplace_back(a.c_str(), a.size());
            nb::gil_scoped_release release;
            b.links_.establish(rank, texts, neighbours_of(sends), neighbours_of(receives),
                               timeout_s);
            b.sockets_ = TcpSockets(b.links_.sockets());
          },
          "rank"_a, "addresses"_a, "sends"_a, "receives"_a, "timeout_s"_a,
          "`sends` and `receives` are (peer, lane).")
      .def("sockets", [](RawBaseline& b) { return totals_of(b.sockets_); });

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
  m.def(
      "interruptions",
      [](int64_t duration_ns) -> std::tuple<int64_t, int64_t, int64_t, int64_t> {
        Interruptions found{};
        {
          nb::gil_scoped_release release;
          found = interruptions(duration_ns);
        }
        return std::make_tuple(found.watched_ns, found.lost_ns, found.longest_ns, found.count);
      },
      "duration_ns"_a,
      "(watched, lost, longest) ns and how often others had this thread's CPU meanwhile.");
  m.def(
      "time_equal_work",
      [](int pieces, int64_t piece_ns) {
        if (pieces < 1 || piece_ns < 1) throw nb::value_error("nothing to do");
        std::vector<int64_t> times;
        {
          nb::gil_scoped_release release;
          times = time_equal_work(pieces, piece_ns);
        }
        return copied(times.data(), times.size());
      },
      "pieces"_a, "piece_ns"_a, "Nanoseconds of each of `pieces` equal pieces of work.");
  m.def("clock_cost", []() -> std::tuple<double, int64_t> {
    const ClockCost cost = clock_cost();
    return std::make_tuple(cost.ns_a_call, cost.resolution_ns);
  });
}

}  // namespace tcpx
