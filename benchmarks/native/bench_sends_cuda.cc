// What softtcpx moves out of a GPU's memory when nothing else is in the way: one process and one
// GPU, over loopback, and what arrives stays in the bounce pages. Two ranks on one GPU would take
// turns there, and on two they would be slowed by the unpack as well.
//
// Settings of softtcpx are the environment's, but for its workers: as many as there are cores but
// for the two callers, half of them at each end. JSON on stdout, all samples; a lap behind the
// timed ones is checked, and exit 1 says that a byte of it was wrong.
//
//   bench_sends_cuda [SAMPLES]
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/gpu.h"
#include "engine/clock.h"
#include "net/library.h"
#include "unpack/unpack.h"

using namespace tcpx;

namespace {

constexpr size_t kChunk = size_t{472} << 10;  // the default with 14 channels and 64 MiB
constexpr uint64_t kWindow = 6;               // messages posted at once, each way of a connection
constexpr uint64_t kSlots = 16;               // of its buffers
constexpr uint64_t kSampleBytes = uint64_t{2} << 30;

void check(int code, const char* call) {
  if (code != kNetSuccess) throw PluginError(call, code, "bench_sends_cuda");
}

// A message of a connection is its number: it lies in slot number % kSlots at both ends.
class Connection {
 public:
  Connection(Net& net, int device, Gpu& gpu, uint32_t seed)
      : net_(net),
        content_(kSlots * kChunk),
        source_(gpu, content_.size() + kAlignment),
        target_(gpu, content_.size() + kAlignment) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < content_.size(); i += 4) {
      const uint32_t word = random();
      memcpy(&content_[i], &word, 4);
    }
    const auto from = reinterpret_cast<CudaAddress>(content_.data());
    copy_now(aligned(source_), from, content_.size());
    connect(device);
    check(net_.reg_mr(send_, at(source_, 0), content_.size(), kNetPtrCuda, &send_region_), "regMr");
    check(net_.reg_mr(recv_, at(target_, 0), content_.size(), kNetPtrCuda, &recv_region_), "regMr");
  }

  // Each for the thread that has that end; true when `messages` altogether are done.
  bool send_until(uint64_t messages) {
    for (; sent_.posted < messages && sent_.posted - sent_.done < kWindow; ++sent_.posted) {
      void** const request = sent_.request(sent_.posted);
      check(net_.isend(send_, at(source_, sent_.posted), kChunk, 0, send_region_, request),
            "isend");
      if (*request == nullptr) break;
    }
    while (sent_.done < sent_.posted && is_done(*sent_.request(sent_.done))) ++sent_.done;
    return sent_.done == messages;
  }
  bool receive_until(uint64_t messages, bool look) {
    for (; got_.posted < messages && got_.posted - got_.done < kWindow; ++got_.posted) {
      void* data = at(target_, got_.posted);
      size_t bytes = kChunk;
      int tag = 0;
      void** const request = got_.request(got_.posted);
      check(net_.irecv(recv_, 1, &data, &bytes, &tag, &recv_region_, request), "irecv");
      if (*request == nullptr) break;
    }
    while (got_.done < got_.posted && is_done(*got_.request(got_.done))) {
      if (look && !right(got_.done)) wrong_ = true;
      check(net_.irecv_consumed(recv_, 1, *got_.request(got_.done)), "irecvConsumed");
      ++got_.done;
    }
    return got_.done == messages;
  }
  bool wrong() const { return wrong_; }

  void close() {
    check(net_.close_send(send_), "closeSend");
    check(net_.close_recv(recv_), "closeRecv");
  }

 private:
  static constexpr size_t kAlignment = 4096;

  struct End {
    uint64_t posted = 0, done = 0;
    std::array<void*, kWindow> requests;
    void** request(uint64_t number) { return &requests[number % kWindow]; }
  };

  static CudaAddress aligned(const GpuMemory& memory) {
    return (memory.address() + kAlignment - 1) / kAlignment * kAlignment;
  }
  static void* at(const GpuMemory& memory, uint64_t number) {
    return reinterpret_cast<void*>(aligned(memory) + number % kSlots * kChunk);
  }

  void connect(int device) {
    char handle[kNetHandleBytes];
    void* listener = nullptr;
    check(net_.listen(device, handle, &listener), "listen");
    while (send_ == nullptr || recv_ == nullptr) {
      NetDeviceHandle* none = nullptr;
      NetDeviceHandle* unpack = &unpack_;
      if (send_ == nullptr) check(net_.connect(device, handle, &send_, &none), "connect");
      if (recv_ == nullptr) check(net_.accept(listener, &recv_, &unpack), "accept");
    }
    check(net_.close_listen(listener), "closeListen");
  }

  bool is_done(void* request) {
    int done = 0, bytes = 0;
    check(net_.test(request, &done, &bytes), "test");
    return done != 0;
  }

  bool right(uint64_t number) const {
    const auto* const device = static_cast<const NetUnpackDevice*>(unpack_.handle);
    const UnpackSource source = unpack_source(*device, number, kChunk);
    const uint8_t* const expected = &content_[number % kSlots * kChunk];
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < source.count; ++i) {
      const NetUnpackFragment& each = source.fragments[i];
      if (each.dst_off > kChunk || each.len > kChunk - each.dst_off) return false;
      if (memcmp(source.bounce + each.src_off, expected + each.dst_off, each.len) != 0)
        return false;
      bytes += each.len;
    }
    return bytes == kChunk;
  }

  Net& net_;
  std::vector<uint8_t> content_;
  GpuMemory source_, target_;
  void *send_ = nullptr, *recv_ = nullptr;
  void *send_region_ = nullptr, *recv_region_ = nullptr;
  NetDeviceHandle unpack_{};
  alignas(64) End sent_;
  alignas(64) End got_;
  bool wrong_ = false;
};

using Connections = std::vector<Connection*>;

int loopback(Net& net) {
  int count = 0;
  check(net.devices(&count), "devices");
  for (int device = 0; device < count; ++device) {
    NetProperties properties;
    check(net.properties(device, &properties), "getProperties");
    if (properties.name == "lo") return device;
  }
  throw std::runtime_error("the plugin has no device lo");
}

double kernel_seconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_stime.tv_usec) / 1e6;
}

// Two ends of the machine, a thread each; all of `there` go one way and all of `back` the other.
class Traffic {
 public:
  Traffic(Gpu& gpu, Connections there, Connections back)
      : gpu_(gpu), there_(std::move(there)), back_(std::move(back)) {}

  // Nanoseconds until so many more messages have moved on each connection.
  int64_t move(uint64_t messages, bool look) {
    messages_ += messages;
    const int64_t began = now_ns();
    std::thread other([&] { serve(back_, there_, look); });
    serve(there_, back_, look);
    other.join();
    return now_ns() - began;
  }

 private:
  void serve(const Connections& out, const Connections& in, bool look) try {
    gpu_.select();
    for (bool all = false; !all;) {
      all = true;
      for (Connection* each : out) all &= each->send_until(messages_);
      for (Connection* each : in) all &= each->receive_until(messages_, look);
    }
  } catch (const std::exception& error) {
    fprintf(stderr, "bench_sends_cuda: %s\n", error.what());
    _exit(2);
  }

  Gpu& gpu_;
  const Connections there_, back_;
  uint64_t messages_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Prints the case; whether all bytes that were looked at are right.
bool measure(const char* name, Net& net, Gpu& gpu, int connections, bool both, int samples) {
  const int device = loopback(net);
  std::deque<Connection> all;
  Connections there, back;
  for (int i = 0; i < connections * (both ? 2 : 1); ++i) {
    all.emplace_back(net, device, gpu, static_cast<uint32_t>(i + 1));
    (i < connections ? there : back).push_back(&all.back());
  }
  Traffic traffic(gpu, there, back);
  const uint64_t messages = std::max<uint64_t>(1, kSampleBytes / kChunk / all.size());
  const double bytes = static_cast<double>(messages * kChunk * all.size());
  traffic.move(messages, false);
  std::vector<double> us_a_gib;
  const double kernel_before = kernel_seconds();
  for (int sample = 0; sample < samples; ++sample)
    us_a_gib.push_back(static_cast<double>(traffic.move(messages, false)) / 1e3 /
                       (bytes / (1 << 30)));
  const double kernel = (kernel_seconds() - kernel_before) / samples / (bytes / 1e9);
  traffic.move(kSlots, true);
  bool right = true;
  for (Connection& each : all) {
    right &= !each.wrong();
    each.close();
  }
  printf(
      "  {\"case\": \"%s\", \"connections\": %zu, \"right\": %s, \"us_a_GiB_median\": %.0f, "
      "\"kernel_s_a_GB\": %.3f, \"us_a_GiB\": [",
      name, all.size(), right ? "true" : "false", median(us_a_gib), kernel);
  for (int i = 0; i < samples; ++i) printf("%s%.0f", i > 0 ? ", " : "", us_a_gib[i]);
  printf("]}%s\n", both ? "" : ",");
  return right;
}

}  // namespace

int main(int count, char** arguments) try {
  const int samples = count > 1 ? atoi(arguments[1]) : 15;
  if (samples < 1) {
    fprintf(stderr, "usage: bench_sends_cuda [SAMPLES], at least 1\n");
    return 2;
  }
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 2;
  const int connections = std::clamp((CPU_COUNT(&cores) - 2) / 2, 1, 8);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("SOFTTCPX_WORKERS", std::to_string(2 * connections).c_str(), 1);
  Gpu& gpu = use_gpu(0);
  gpu.select();
  Plugin plugin(SOFTTCPX_PLUGIN);
  plugin.init();
  printf("{\"chunk_bytes\": %zu, \"window\": %d, \"cases\": [\n", kChunk,
         static_cast<int>(kWindow));
  const bool one_way = measure("sends_one_way", plugin.net(), gpu, connections, false, samples);
  const bool both_ways = measure("sends_both_ways", plugin.net(), gpu, connections, true, samples);
  printf("]}\n");
  return one_way && both_ways ? 0 : 1;
} catch (const std::exception& error) {
  fprintf(stderr, "bench_sends_cuda: %s\n", error.what());
  return 2;
}
