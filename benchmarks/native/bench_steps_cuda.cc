// What a message costs on its way out of a GPU's memory and into it, step by step, by the CPU's
// clock and with nothing else to do: as softtcpx and the unpacker do it, and as it could be done.
// JSON on stdout, all samples; exit 1 where a byte is wrong.
//
//   bench_steps_cuda [ROUNDS [FOLDER_OF_NVRTC]]
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "engine/clock.h"
#include "unpack/cuda_unpacker.h"

using namespace tcpx;

namespace {

constexpr uint32_t kPage = 4096;
constexpr size_t kMost = size_t{512} << 10;
constexpr size_t kSizes[] = {2 * kPage, 64 << 10, kMost};
constexpr int kWarmUps = 5;

// Calls that the product's engine does not make.
template <typename Function>
Function* driver_call(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(symbol);
}

CudaAddress address(const void* pointer) { return reinterpret_cast<CudaAddress>(pointer); }

void check(int code, const char* call) { check_cuda(code, call); }

// Memory on both sides, and the ways between them. Each says when its calls had returned.
class Ways {
 public:
  explicit Ways(Gpu& gpu)
      : stream_(gpu),
        on_gpu_(gpu, kMost),
        pages_(gpu, kMost),
        word_(gpu, sizeof(uint64_t)),
        queue_(gpu, sizeof(NetUnpackQueue)),
        unpacker_(gpu.facts.ordinal, UnpackMode::kKernel) {
    // Without the time stamps that make an event slower.
    constexpr unsigned kDisableTiming = 2;
    check(cuda().event_create(&event_, kDisableTiming), "cuEventCreate");
  }
  ~Ways() { cuda().event_destroy(event_); }

  // As softtcpx sends: the GPU writes a number behind the copy.
  int64_t down_copy_number(size_t bytes) { return copied(pages_.address(), gpu(), bytes); }
  int64_t up_copy_number(size_t bytes) { return copied(gpu(), pages_.address(), bytes); }
  // The driver is asked whether an event behind the copy was reached.
  int64_t down_copy_event(size_t bytes) {
    void* const stream = stream_.handle();
    check(cuda().copy_async(pages_.address(), gpu(), bytes, stream), "cuMemcpyAsync");
    check(cuda().event_record(event_, stream), "cuEventRecord");
    const int64_t called = now_ns();
    constexpr int kNotReady = 600;
    int code;
    while ((code = event_query_(event_)) == kNotReady) {
    }
    check(code, "cuEventQuery");
    return called;
  }
  // The kernel copies, and tells.
  int64_t down_kernel(size_t bytes) { return unpacked(gpu(), pages_.data(), bytes); }
  // As the engine puts a receive together.
  int64_t up_kernel(size_t bytes) {
    return unpacked(pages_.address(), reinterpret_cast<uint8_t*>(gpu()), bytes);
  }

  // When the last list was there: what comes before is the plugin's.
  int64_t listed() const { return listed_; }

  // These bytes on one side, zeros on the other.
  void put(bool on_gpu, const std::vector<uint8_t>& bytes) {
    const std::vector<uint8_t> zeros(bytes.size());
    copy_now(gpu(), address(on_gpu ? bytes.data() : zeros.data()), bytes.size());
    memcpy(pages_.data(), on_gpu ? zeros.data() : bytes.data(), bytes.size());
  }
  // Whether a side has these bytes.
  bool arrived(bool on_gpu, const std::vector<uint8_t>& bytes) {
    std::vector<uint8_t> found(bytes.size());
    copy_now(address(found.data()), on_gpu ? gpu() : pages_.address(), found.size());
    return found == bytes;
  }

 private:
  CudaAddress gpu() const { return on_gpu_.address(); }

  int64_t copied(CudaAddress to, CudaAddress from, size_t bytes) {
    check(cuda().copy_async(to, from, bytes, stream_.handle()), "cuMemcpyAsync");
    check(write_value_(stream_.handle(), word_.address(), ++number_, 0), "cuStreamWriteValue64");
    const int64_t called = now_ns();
    const auto* word = reinterpret_cast<const uint64_t*>(word_.data());
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != number_) {
    }
    return called;
  }

  // In fragments of a page, listed as a plugin does.
  int64_t unpacked(CudaAddress from, uint8_t* to, size_t bytes) {
    auto* const queue = reinterpret_cast<NetUnpackQueue*>(queue_.data());
    const uint64_t slot = receives_ % kNetUnpackSlots;
    queue->cnt[slot] = bytes / kPage;
    for (uint32_t i = 0; i < bytes / kPage; ++i)
      queue->mem[slot][i] = {i * kPage, kPage, i * kPage};
    const NetUnpackDevice device{queue, reinterpret_cast<void*>(from), 0};
    listed_ = now_ns();
    unpacker_.submit(unpack_source(device, receives_++, bytes), to, bytes);
    unpacker_.flush();
    const int64_t called = now_ns();
    while (unpacker_.finished() < unpacker_.last_ticket()) {
      check(unpacker_.failure().code, unpacker_.failure().call);
    }
    return called;
  }

  int (*const write_value_)(void*, CudaAddress, uint64_t, unsigned) =
      driver_call<int(void*, CudaAddress, uint64_t, unsigned)>("cuStreamWriteValue64_v2");
  int (*const event_query_)(void*) = driver_call<int(void*)>("cuEventQuery");
  GpuStream stream_;
  GpuMemory on_gpu_;
  PinnedMemory pages_, word_, queue_;
  CudaUnpacker unpacker_;
  void* event_ = nullptr;
  uint64_t number_ = 0, receives_ = 0;
  int64_t listed_ = 0;
};

struct Step {
  const char* name;
  bool up;
  bool lists;  // descriptors, which is not counted
  int64_t (Ways::*way)(size_t bytes);
};
constexpr Step kSteps[] = {
    {"down_copy_number", false, false, &Ways::down_copy_number},
    {"down_copy_event", false, false, &Ways::down_copy_event},
    {"down_kernel", false, true, &Ways::down_kernel},
    {"up_kernel", true, true, &Ways::up_kernel},
    {"up_copy_number", true, false, &Ways::up_copy_number},
};

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void print(const char* name, const std::vector<double>& samples) {
  printf("\"%s_us_median\": %.2f, \"%s_us\": [", name, median(samples), name);
  for (size_t i = 0; i < samples.size(); ++i) printf("%s%.2f", i > 0 ? ", " : "", samples[i]);
  printf("]");
}

// True where every byte is right.
bool run(Ways& ways, const Step& step, size_t bytes, int rounds, std::mt19937& random, bool last) {
  std::vector<uint8_t> content(bytes);
  for (uint8_t& byte : content) byte = static_cast<uint8_t>(1 + random() % 255);
  ways.put(!step.up, content);
  std::vector<double> calls, seen;
  for (int round = -kWarmUps; round < rounds; ++round) {
    const int64_t begin = now_ns();
    const int64_t called = (ways.*step.way)(bytes);
    const int64_t end = now_ns();
    if (round < 0) continue;
    const int64_t from = step.lists ? ways.listed() : begin;
    calls.push_back(static_cast<double>(called - from) / 1e3);
    seen.push_back(static_cast<double>(end - from) / 1e3);
  }
  const bool right = ways.arrived(step.up, content);
  printf("  {\"step\": \"%s\", \"bytes\": %zu, \"right\": %s,\n   ", step.name, bytes,
         right ? "true" : "false");
  print("calls", calls);
  printf(",\n   ");
  print("seen", seen);
  printf("%s\n", last ? "}" : "},");
  return right;
}

}  // namespace

int main(int count, char** arguments) try {
  const int rounds = count > 1 ? atoi(arguments[1]) : 201;
  if (rounds < 1) throw std::runtime_error("ROUNDS is a number above 0");
  set_cuda_compiler({{count > 2 ? arguments[2] : ""}, ""});
  Gpu& gpu = use_gpu(0);
  gpu.select();
  Ways ways(gpu);
  std::mt19937 random(5);
  printf("{\"gpu\": \"%s\", \"rounds\": %d, \"steps\": [\n", gpu.facts.name.c_str(), rounds);
  bool right = true;
  for (const size_t bytes : kSizes) {
    for (const Step& step : kSteps) {
      const bool last = bytes == kMost && &step == std::end(kSteps) - 1;
      right = run(ways, step, bytes, rounds, random, last) && right;
    }
  }
  printf("]}\n");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  fprintf(stderr, "bench_steps_cuda: %s\n", error.what());
  return 2;
}
