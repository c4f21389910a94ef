// How fast a GPU unpacks, beside a plain copy of the same bytes by the driver, in turns. GPU time
// by three measures, each of launches of its own:
//
// - by events around one launch; their own time is in it, which `empty` shows: it moves nothing;
// - by events around kRow launches one behind the other, for each: their own time is in it by a
//   part in kRow, and the GPU's way from one kernel to the next;
// - by the profiler, from the kernel's start to its end, where there is CUPTI.
//
// JSON on stdout, all samples; exit 1 where a byte is wrong.
//
//   bench_unpack_cuda [ROUNDS [FOLDER_OF_NVRTC_AND_CUPTI [CASE...]]]      (all cases)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "gpu_profiler.h"
#include "unpack/cuda_unpacker.h"

using namespace tcpx;

namespace {

constexpr uint32_t kPage = 4096;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kAFragments = 1024;  // of a request, so that one launch has all
constexpr int kRow = 10;
constexpr size_t kRowFragments =
    256;  // with more the CPU, which looks at each, is slower than a GPU
constexpr int kWarmUps = 3;
constexpr size_t kLeadBytes = 32 * kMiB;  // a launch: longer than the CPU takes for one

struct Case {
  const char* name;
  UnpackMode mode;
  bool pinned;  // the bounce buffer is the host's, else the GPU's
  size_t bytes;
  uint32_t fragment;
  bool odd;  // sources and destinations at any byte
};
constexpr Case kCases[] = {
    {"pages_64MiB", UnpackMode::kKernel, false, 64 * kMiB, kPage, false},
    {"chunk_512KiB", UnpackMode::kKernel, false, kMiB / 2, kPage, false},
    {"mss_64MiB", UnpackMode::kKernel, false, 64 * kMiB, 1460, true},
    {"page_4KiB", UnpackMode::kKernel, false, kPage, kPage, false},
    {"empty", UnpackMode::kKernel, false, 0, kPage, false},
    {"pinned_pages_64MiB", UnpackMode::kKernel, true, 64 * kMiB, kPage, false},
    {"pinned_chunk_512KiB", UnpackMode::kKernel, true, kMiB / 2, kPage, false},
    {"pinned_8KiB", UnpackMode::kKernel, true, 2 * kPage, kPage, false},
    {"pinned_mss_64MiB", UnpackMode::kKernel, true, 64 * kMiB, 1460, true},
    {"d2d_chunk_512KiB", UnpackMode::kCopies, false, kMiB / 2, kPage, false},
    {"host_chunk_512KiB", UnpackMode::kHost, false, kMiB / 2, kPage, false},
};

struct Memory {
  std::unique_ptr<GpuMemory> on_gpu;
  std::unique_ptr<PinnedMemory> pinned;
  CudaAddress address() const { return on_gpu ? on_gpu->address() : pinned->address(); }
};

CudaAddress address(const void* pointer) { return reinterpret_cast<CudaAddress>(pointer); }

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

struct Samples {
  std::vector<double> unpacks, copies;  // microseconds a launch
};

Samples without_warm_ups(Samples samples) {
  for (auto* each : {&samples.unpacks, &samples.copies}) {
    each->erase(each->begin(), each->begin() + kWarmUps);
  }
  return samples;
}

// Throws where one is missing: whose times the others are would be a guess.
Samples all_of(const GpuProfiler::Times& times, size_t launches, bool copied) {
  const size_t copies = copied ? launches : 0;
  if (times.kernels.size() != launches || times.copies.size() != copies) {
    throw std::runtime_error("CUPTI saw " + std::to_string(times.kernels.size()) + " kernels and " +
                             std::to_string(times.copies.size()) + " copies, not " +
                             std::to_string(launches) + " and " + std::to_string(copies));
  }
  Samples samples{times.kernels, times.copies};
  samples.copies.resize(launches);  // 0 where there is none
  return without_warm_ups(samples);
}

void print(const char* name, const std::vector<double>& samples, const char* end) {
  printf("    \"%s\": [", name);
  for (size_t i = 0; i < samples.size(); ++i) printf("%s%.3f", i > 0 ? ", " : "", samples[i]);
  printf("]%s", end);
}

void print(const char* name, const Samples& samples, const char* end) {
  const double unpack = median(samples.unpacks), copy = median(samples.copies);
  printf(
      "   \"%s\": {\"unpack_us_median\": %.2f, \"copy_us_median\": %.2f, \"ratio_to_copy\": "
      "%.3f,\n",
      name, unpack, copy, copy / unpack);
  print("unpack_us", samples.unpacks, ",\n");
  print("copy_us", samples.copies, "}");
  printf("%s", end);
}

// GPU time of copies of `bytes`, queued behind something else, as the unpack is.
class CopyTimer {
 public:
  CopyTimer(Gpu& gpu, size_t bytes)
      : stream_(gpu), lead_(gpu, kRow * kLeadBytes), to_(gpu, std::max<size_t>(bytes, 1)) {
    check_cuda(cuda().event_create(&begin_, 0), "cuEventCreate");
    check_cuda(cuda().event_create(&end_, 0), "cuEventCreate");
  }
  ~CopyTimer() {
    cuda().event_destroy(begin_);
    cuda().event_destroy(end_);
  }
  // Long enough for the clocks of an idle GPU to rise.
  void warm_up() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (std::chrono::steady_clock::now() < end) {
      check_cuda(cuda().set8_async(lead_.address(), 0, lead_.bytes(), stream_.handle()),
                 "cuMemsetD8Async");
      check_cuda(cuda().stream_wait(stream_.handle()), "cuStreamSynchronize");
    }
  }
  // Of each of `row` copies.
  double microseconds(CudaAddress from, size_t bytes, int row) {
    float ms = 0;
    void* stream = stream_.handle();
    check_cuda(cuda().set8_async(lead_.address(), 0, row * kLeadBytes, stream), "cuMemsetD8Async");
    check_cuda(cuda().event_record(begin_, stream), "cuEventRecord");
    for (int i = 0; i < row && bytes > 0; ++i) {
      check_cuda(cuda().copy_async(to_.address(), from, bytes, stream), "cuMemcpyAsync");
    }
    check_cuda(cuda().event_record(end_, stream), "cuEventRecord");
    check_cuda(cuda().event_wait(end_), "cuEventSynchronize");
    check_cuda(cuda().event_elapsed(&ms, begin_, end_), "cuEventElapsedTime");
    return 1e3 * ms / row;
  }

 private:
  GpuStream stream_;
  GpuMemory lead_, to_;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

// True where every byte is right.
bool run(Gpu& gpu, GpuProfiler* profiler, const Case& c, int rounds, bool last) {
  std::mt19937 random(5);
  const size_t fragments = (c.bytes + c.fragment - 1) / c.fragment;
  const size_t bounce_bytes = fragments * kPage + kPage;
  std::vector<uint8_t> host(bounce_bytes);
  for (size_t i = 0; i + 4 <= host.size(); i += 4) {
    const uint32_t word = random();
    memcpy(&host[i], &word, 4);
  }
  Memory bounce;
  if (c.pinned) {
    bounce.pinned = std::make_unique<PinnedMemory>(gpu, bounce_bytes);
  } else {
    bounce.on_gpu = std::make_unique<GpuMemory>(gpu, bounce_bytes);
  }
  copy_now(bounce.address(), address(host.data()), host.size());

  // Fragments in shuffled pages; where odd, each at a byte of its own.
  const size_t shift = c.odd ? 5 : 0;
  GpuMemory destination(gpu, c.bytes + 64);
  auto* const to = reinterpret_cast<uint8_t*>(destination.address()) + shift;
  const size_t requests = std::max<size_t>((fragments + kAFragments - 1) / kAFragments, 1);
  const size_t queues = (requests + kNetUnpackSlots - 1) / kNetUnpackSlots;
  PinnedMemory memory(gpu, queues * sizeof(NetUnpackQueue));
  auto* const queue = reinterpret_cast<NetUnpackQueue*>(memory.data());
  std::vector<uint32_t> pages(fragments);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  std::vector<uint8_t> expected(c.bytes);
  for (size_t f = 0; f < fragments; ++f) {
    const size_t request = f / kAFragments;
    NetUnpackQueue& q = queue[request / kNetUnpackSlots];
    uint64_t& count = q.cnt[request % kNetUnpackSlots];
    const size_t at = f * c.fragment;
    const auto length = static_cast<uint32_t>(std::min<size_t>(c.fragment, c.bytes - at));
    const auto from = static_cast<uint32_t>(pages[f] * kPage + (c.odd ? random() % 1000 : 0));
    q.mem[request % kNetUnpackSlots][count++] = {from, length,
                                                 at - request * kAFragments * c.fragment};
    memcpy(&expected[at], &host[from], length);
  }

  CudaUnpacker unpacker(gpu.facts.ordinal, c.mode);
  CopyTimer timer(gpu, c.bytes);
  timer.warm_up();
  const auto unpack = [&] {
    for (size_t request = 0; request < requests; ++request) {
      const NetUnpackDevice device{&queue[request / kNetUnpackSlots],
                                   reinterpret_cast<void*>(bounce.address()), 0};
      const size_t at = request * kAFragments * c.fragment;
      const size_t bytes = std::min(c.bytes - at, kAFragments * c.fragment);
      unpacker.submit(unpack_source(device, request, bytes), to + at, bytes);
    }
    unpacker.flush();
  };
  const auto in_turns = [&](int row) {
    Samples samples;
    unpacker.measure(rounds + kWarmUps, row);
    for (int round = 0; round < rounds + kWarmUps; ++round) {
      for (int i = 0; i < row; ++i) unpack();
      while (unpacker.finished() < unpacker.last_ticket()) {
        check_cuda(unpacker.failure().code, unpacker.failure().call);
      }
      samples.copies.push_back(timer.microseconds(bounce.address(), c.bytes, row));
    }
    for (const auto& each : unpacker.measured()) samples.unpacks.push_back(each.microseconds / row);
    return without_warm_ups(samples);
  };
  const Samples alone = in_turns(1);
  const bool rows = fragments <= kRowFragments;
  const Samples in_a_row = rows ? in_turns(kRow) : Samples{};
  // Unpacks by other modes are no kernels.
  const bool profiled = profiler != nullptr && c.mode == UnpackMode::kKernel;
  Samples by_profiler;
  if (profiled) {
    profiler->begin();
    in_turns(1);
    by_profiler = all_of(profiler->end(), rounds + kWarmUps, c.bytes > 0);
  }

  std::vector<uint8_t> found(c.bytes);
  if (c.bytes > 0) copy_now(address(found.data()), address(to), found.size());
  const bool right = found == expected;
  printf("  {\"case\": \"%s\", \"bytes\": %zu, \"fragments\": %zu, \"right\": %s,\n", c.name,
         c.bytes, fragments, right ? "true" : "false");
  print("alone", alone, rows || profiled ? ",\n" : "");
  if (rows) print("in_a_row", in_a_row, profiled ? ",\n" : "");
  if (profiled) print("by_profiler", by_profiler, "");
  printf(last ? "}\n" : "},\n");
  return right;
}

// Those that are named, or all. Throws where a name is none.
std::vector<Case> chosen(int count, char** names) {
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) {
    const auto found = std::find_if(std::begin(kCases), std::end(kCases),
                                    [&](const Case& c) { return strcmp(c.name, names[i]) == 0; });
    if (found == std::end(kCases)) throw std::runtime_error(std::string("no case ") + names[i]);
    cases.push_back(*found);
  }
  if (count == 0) cases.assign(std::begin(kCases), std::end(kCases));
  return cases;
}

}  // namespace

int main(int count, char** arguments) try {
  const int rounds = count > 1 ? atoi(arguments[1]) : 51;
  if (rounds < 1) {
    fprintf(stderr, "usage: bench_unpack_cuda [ROUNDS [FOLDER [CASE...]]], at least one round\n");
    return 2;
  }
  const std::vector<Case> cases = chosen(std::max(count - 3, 0), arguments + std::min(count, 3));
  const std::string folder = count > 2 ? arguments[2] : "";
  set_cuda_compiler({{folder}, ""});
  std::string why_not;
  const auto profiler = GpuProfiler::find(folder, &why_not);
  if (!profiler) fprintf(stderr, "bench_unpack_cuda: without the profiler: %s\n", why_not.c_str());
  const std::string cupti = profiler ? "\"" + profiler->version() + "\"" : "null";
  Gpu& gpu = use_gpu(0);
  gpu.select();
  int driver = 0;
  check_cuda(cuda().driver_version(&driver), "cuDriverGetVersion");
  printf(
      "{\"gpu\": \"%s\", \"cuda_driver\": %d, \"nvrtc\": \"%s\", \"cupti\": %s, \"rounds\": %d, "
      "\"row\": %d, \"cases\": [\n",
      gpu.facts.name.c_str(), driver, find_nvrtc().version.c_str(), cupti.c_str(), rounds, kRow);
  bool right = true;
  for (const Case& c : cases)
    right = run(gpu, profiler.get(), c, rounds, &c == &cases.back()) && right;
  printf("]}\n");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  fprintf(stderr, "bench_unpack_cuda: %s\n", error.what());
  return 2;
}
