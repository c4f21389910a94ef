#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "bindings/memory.h"
#include "bindings/runner.h"
#include "bindings/sockets.h"
#include "engine/clock.h"
#include "engine/connections.h"
#include "engine/grouped_loop.h"
#include "engine/paced_loop.h"
#include "engine/timed_loop.h"
#include "engine/traced_loop.h"
#include "net/library.h"
#include "unpack/cuda_unpacker.h"
#include "unpack/witness.h"

namespace tcpx {
namespace {

constexpr int kUnpackInPlace = -1;  // the plugin delivers where the receive was posted
constexpr int kNoGpu = -1;

void from_gpu(void* to, const void* from, size_t bytes) {
  copy_now(reinterpret_cast<CudaAddress>(to), reinterpret_cast<CudaAddress>(from), bytes);
}

std::unique_ptr<Unpacker> make_unpacker(int unpack, int gpu, CudaUnpacker** on_gpu) {
  if (unpack == kUnpackInPlace) return nullptr;
  const auto mode = static_cast<UnpackMode>(unpack);
  if (gpu == kNoGpu) return make_cpu_unpacker(mode);
  auto unpacker = std::make_unique<CudaUnpacker>(gpu, mode);
  *on_gpu = unpacker.get();
  return unpacker;
}

// The pieces of a rank's engine, in the order in which they may be destroyed.
class Engine : public Runner {
 public:
  Engine(Plugin& plugin, int device, int window_send, int window_receive, int spins_before_yield,
         int unpack, bool witness, int gpu, int setup_gpu, size_t trace, int threads, bool flush,
         bool paced, int receives, uint64_t seed)
      : plugin_(plugin),
        connections_(plugin.net(), device, gpu == kNoGpu ? setup_gpu : gpu),
        unpacker_(make_unpacker(unpack, gpu, &cuda_unpacker_)),
        witness_(witness && unpacker_
                     ? (gpu == kNoGpu ? new UnpackWitness(std::move(unpacker_))
                                      : new UnpackWitness(std::move(unpacker_), &from_gpu))
                     : nullptr),
        copier_(gpu == kNoGpu ? nullptr : make_cuda_unpacker(gpu, UnpackMode::kCopies)) {
    if (threads < 1 || (threads > 1 && gpu != kNoGpu)) {
      throw nb::value_error("one progress thread, or several without a GPU");
    }
    if (receives > 1 && (unpacker_ || witness_)) {
      throw nb::value_error("several receives a request, or fragments");
    }
    const TimedLoopLimits limits{window_send, window_receive, spins_before_yield, flush};
    std::vector<BatchLoop*> loops;
    for (int i = 0; i < threads; ++i) {
      Unpacker* unpacker = witness_ ? witness_.get() : unpacker_.get();
      if (i > 0 && unpacker != nullptr) {  // each has a buffer of its own
        unpackers_.push_back(make_unpacker(unpack, gpu, nullptr));
        unpacker = unpackers_.back().get();
      }
      loops_.push_back(make_loop(limits, unpacker, trace, paced, receives, seed));
      loops.push_back(loops_.back().get());
    }
    team_.emplace(std::move(loops), gpu);
  }
  ~Engine() override { team_.reset(); }
  uint64_t most_chunk_bytes() const override { return kMaxChunkBytes; }
  void pace(double interval_ns) {
    for (PacedLoop* loop : paced_) loop->pace(interval_ns);
  }
  void load(std::vector<Program> programs, const SlotBase* buffers) override {
    for (size_t i = 0; i < loops_.size(); ++i) loops_[i]->load(std::move(programs[i]), buffers);
  }

  Plugin& plugin_;
  Connections connections_;
  CudaUnpacker* cuda_unpacker_ = nullptr;  // the same, where a GPU unpacks
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<UnpackWitness> witness_;            // has the unpacker, where there is one
  std::vector<std::unique_ptr<Unpacker>> unpackers_;  // of all loops but the first
  std::unique_ptr<Unpacker> copier_;
  std::vector<std::unique_ptr<TimedLoop>> loops_;
  std::vector<PacedLoop*> paced_;  // the same, where they begin iterations by the clock

 private:
  std::unique_ptr<TimedLoop> make_loop(const TimedLoopLimits& limits, Unpacker* unpacker,
                                       size_t trace, bool paced, int receives, uint64_t seed) {
    Net& net = plugin_.net();
    if ((trace != 0) + paced + (receives != 1) > 1) {
      throw nb::value_error("a loop is paced, or traced, or has several receives a request");
    }
    if (receives != 1) {
      return std::make_unique<GroupedLoop>(net, connections_, limits, copier_.get(), receives,
                                           seed);
    }
    if (paced) {
      auto loop = std::make_unique<PacedLoop>(net, connections_, limits, unpacker, copier_.get());
      paced_.push_back(loop.get());
      return loop;
    }
    if (trace == 0) {
      return std::make_unique<TimedLoop>(net, connections_, limits, unpacker, copier_.get());
    }
    return std::make_unique<TracedLoop>(net, connections_, limits, unpacker, copier_.get(), trace);
  }
};

class UnpackSight : public nb::dict {
  NB_OBJECT_DEFAULT(UnpackSight, nb::dict, "UnpackSight", PyDict_Check)
};

// What the witness of an engine has seen since the last time, each receive with its comm.
List<UnpackSight> sights_of(Engine& engine) {
  List<UnpackSight> rows;
  if (!engine.witness_) return rows;
  for (const UnpackWitness::Sight& sight : engine.witness_->take()) {
    UnpackSight row;
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

}  // namespace

void bind_engine(nb::module_& m) {
  m.attr("UNPACK_IN_PLACE") = kUnpackInPlace;
  m.attr("UNPACK_KERNEL") = static_cast<int>(UnpackMode::kKernel);
  m.attr("UNPACK_COPIES") = static_cast<int>(UnpackMode::kCopies);
  m.attr("UNPACK_HOST") = static_cast<int>(UnpackMode::kHost);
  m.attr("UNPACK_STAYING") = static_cast<int>(UnpackMode::kStaying);
  m.attr("UNPACK_NONE") = static_cast<int>(UnpackMode::kNone);

  nb::class_<Engine, Runner>(m, "Engine")
      .def(nb::init<Plugin&, int, int, int, int, int, bool, int, int, size_t, int, bool, bool, int,
                    uint64_t>(),
           "plugin"_a, "device"_a, "window_send"_a, "window_receive"_a, "spins_before_yield"_a,
           "unpack"_a = kUnpackInPlace, "witness"_a = false, "gpu"_a = kNoGpu,
           "setup_gpu"_a = kNoGpu, "trace"_a = 0, "threads"_a = 1, "flush"_a = false,
           "paced"_a = false, "receives"_a = 1, "seed"_a = 0, nb::keep_alive<1, 2>())
      .def("pace", &Engine::pace, "interval_ns"_a)
      .def(
          "listen",
          [](Engine& e, int peer, int lane, int channel) {
            const auto handle = [&] {
              const nb::gil_scoped_release release;
              return e.connections_.listen(peer, lane, channel);
            }();
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
          "establish",
          [](Engine& e, double timeout_s, const WaitHook& hook, const BegunHook& begun) {
            e.connections_.establish(timeout_s, hook, begun);
          },
          "timeout_s"_a, "hook"_a.none() = nb::none(), "begun"_a.none() = nb::none(),
          nb::call_guard<nb::gil_scoped_release>(),
          "`hook` is called now and then while it waits, and ends the wait by raising; `begun` "
          "from "
          "when this rank's connects were begun until it tells that its peers' were, too.")
      .def(
          "describe_pending",
          [](Engine& e, const std::string& how) { return e.connections_.describe_pending(how); },
          "how"_a)
      .def(
          "register_buffer",
          [](Engine& e, int buffer, SlotMemory& memory, int pointer, bool dma_buf) {
            if (buffer < 0 || buffer >= kBuffers) throw nb::value_error("no such buffer");
            nb::gil_scoped_release release;
            e.connections_.register_buffer(buffer, memory.data(), memory.capacity(),
                                           {pointer, dma_buf});
          },
          "buffer"_a, "memory"_a, "pointer"_a = static_cast<int>(kNetPtrHost), "dma_buf"_a = false,
          nb::keep_alive<1, 3>())
      .def("setup_times",
           [](Engine& e) {
             List<std::tuple<std::string, int, int, int, int64_t, int64_t, int64_t>> rows;
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
      .def(
          "measure_unpack",
          [](Engine& e, size_t launches) {
            if (e.cuda_unpacker_ == nullptr) throw nb::value_error("no GPU unpacks here");
            e.cuda_unpacker_->measure(launches);
          },
          "launches"_a, "The GPU times each of the next launches, in batches that are not timed.")
      .def(
          "unpack_times",
          [](Engine& e) {
            List<std::tuple<int, uint64_t, double>> rows;
            if (e.cuda_unpacker_ == nullptr) return rows;
            for (const auto& m : e.cuda_unpacker_->measured()) {
              rows.append(nb::make_tuple(m.requests, m.bytes, m.microseconds));
            }
            return rows;
          },
          "Of each measured launch: receives, bytes, microseconds on the GPU.")
      .def("sockets", [](Engine& e) { return totals_of(e.connections_.sockets()); });

  m.def("unpack_sights", &sights_of, "engine"_a,
        "What an engine with a witness found in its descriptor queues since the last call.");
}

}  // namespace tcpx
