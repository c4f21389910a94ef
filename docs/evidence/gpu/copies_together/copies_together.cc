// What copies out of a GPU take that are begun one by one, or together: many in a row into
// page-locked memory, until the last one has landed. An experiment, kept as it ran; no part of the
// product.
//
//   g++ -O2 -std=c++17 -o copies_together docs/evidence/gpu/copies_together/copies_together.cc -ldl
//   ./copies_together        (a line for each way: median of 7, microseconds a copy)
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using Address = unsigned long long;
using Stream = void*;

template <class Function>
Function* call(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) {
    fprintf(stderr, "the driver has no %s\n", name);
    exit(2);
  }
  return reinterpret_cast<Function*>(found);
}

#define CHECK(x)                                                      \
  do {                                                                \
    if (const int code = (x)) {                                       \
      fprintf(stderr, "%s:%d: error %d\n", __FILE__, __LINE__, code); \
      exit(2);                                                        \
    }                                                                 \
  } while (0)

struct Attributes {
  int order = 1;  // in stream order
  int hints[4] = {0, 0, 0, 0};
  unsigned flags = 0;
};

constexpr size_t kSource = 256 << 20, kTarget = 64 << 20, kAll = 96 << 20;
constexpr int kRounds = 9, kWarmUps = 2;

struct Way {
  const char* name;
  int streams;
  size_t together;  // copies in a call; 0: each in a call of its own
  bool number;      // that the GPU writes behind each call
};
constexpr Way kWays[] = {
    {"one by one, no number", 14, 0, false},
    {"one by one, a number behind each, on 14 streams", 14, 0, true},
    {"one by one, a number behind each", 1, 0, true},
    {"2 together, a number behind them", 1, 2, true},
    {"4 together, a number behind them", 1, 4, true},
    {"14 together, a number behind them", 1, 14, true},
};

double now_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(since).count();
}

int main() {
  CHECK(call<int(unsigned)>("cuInit")(0));
  int device = 0;
  void* context = nullptr;
  char name[128];
  CHECK(call<int(int*, int)>("cuDeviceGet")(&device, 0));
  CHECK(call<int(char*, int, int)>("cuDeviceGetName")(name, sizeof name, device));
  CHECK(call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device));
  CHECK(call<int(void*)>("cuCtxSetCurrent")(context));
  const auto copy = call<int(void*, Address, size_t, Stream)>("cuMemcpyDtoHAsync_v2");
  const auto batch =
      call<int(Address*, Address*, size_t*, size_t, Attributes*, size_t*, size_t, Stream)>(
          "cuMemcpyBatchAsync_v2");
  const auto write = call<int(Stream, Address, uint32_t, unsigned)>("cuStreamWriteValue32_v2");
  const auto wait = call<int()>("cuCtxSynchronize");
  Address source = 0;
  void *target = nullptr, *words = nullptr;
  CHECK(call<int(Address*, size_t)>("cuMemAlloc_v2")(&source, kSource));
  const auto allocate = call<int(void**, size_t, unsigned)>("cuMemHostAlloc");
  CHECK(allocate(&target, kTarget, 3));
  CHECK(allocate(&words, 4096, 3));
  std::vector<Stream> streams(14);
  for (Stream& stream : streams) CHECK(call<int(Stream*, unsigned)>("cuStreamCreate")(&stream, 1));

  printf("%s\n", name);
  for (const size_t bytes : {8, 64, 128, 256, 472, 944}) {
    for (const Way& way : kWays) {
      const size_t size = bytes << 10;
      const size_t copies = std::max<size_t>(std::min<size_t>(1024, kAll / size) / 28, 1) * 28;
      std::vector<double> times, calls;
      for (int round = -kWarmUps; round < kRounds - kWarmUps; ++round) {
        CHECK(wait());
        const double begin = now_us();
        size_t from = 0, to = 0;
        uint32_t number = 0;
        for (size_t i = 0; i < copies;) {
          const size_t count = std::max<size_t>(way.together, 1);
          Address sources[14], targets[14];
          size_t sizes[14];
          for (size_t k = 0; k < count; ++k) {
            if (from + size > kSource) from = 0;
            if (to + size > kTarget) to = 0;
            sources[k] = source + from;
            targets[k] = reinterpret_cast<Address>(target) + to;
            sizes[k] = size;
            from += size;
            to += size;
          }
          const Stream stream = streams[i % static_cast<size_t>(way.streams)];
          if (way.together > 0) {
            Attributes attributes;
            size_t first = 0;
            CHECK(batch(targets, sources, sizes, count, &attributes, &first, 1, stream));
          } else {
            CHECK(copy(reinterpret_cast<void*>(targets[0]), sources[0], size, stream));
          }
          const Address word =
              reinterpret_cast<Address>(words) + 64 * (i % static_cast<size_t>(way.streams));
          if (way.number) CHECK(write(stream, word, ++number, 0));
          i += count;
        }
        const double called = now_us();
        CHECK(wait());
        if (round < 0) continue;
        times.push_back((now_us() - begin) / static_cast<double>(copies));
        calls.push_back((called - begin) / static_cast<double>(copies));
      }
      std::sort(times.begin(), times.end());
      std::sort(calls.begin(), calls.end());
      printf("%zu KiB, %s: %.2f us, of which calls %.2f us\n", bytes, way.name,
             times[times.size() / 2], calls[calls.size() / 2]);
    }
  }
}
