// How fast the CPU reduces, beside memcpy, out of cache: a line a type.
//
//   bench_reduce [MIB [ROUNDS]]      256 MiB a buffer, the best of 5
//
// GB/s of memcpy: bytes copied a second. GB/s of a sum: bytes of the local operand that are reduced
// a second, where the result stands in a third buffer, and where it replaces the operand. Copies
// and sums take turns, on one thread, over buffers whose pages are all there.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "memory/buffer.h"
#include "reduce/reduce.h"

using namespace tcpx;

namespace {

constexpr const char* kNames[kElementTypes] = {"int8",   "uint8",    "int32",  "uint32",
                                               "int64",  "uint64",   "half",   "float",
                                               "double", "bfloat16", "f8e4m3", "f8e5m2"};

template <typename Work>
double gb_per_s(size_t bytes, Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / took.count() / 1e9;
}

}  // namespace

int main(int count, char** arguments) {
  const size_t bytes = static_cast<size_t>(count > 1 ? atoi(arguments[1]) : 256) << 20;
  const int rounds = count > 2 ? atoi(arguments[2]) : 5;
  HostBuffer a(bytes), b(bytes), out(bytes);
  // Ones of every type's own would need its conversion; small numbers of each are as good.
  memset(a.data(), 0x21, bytes);
  memset(b.data(), 0x22, bytes);
  memset(out.data(), 0, bytes);
  printf("%zu MiB, best of %d, vectors of width %d\n", bytes >> 20, rounds,
         static_cast<int>(widest_vectors()));
  printf("| type | memcpy GB/s | sum GB/s | in place GB/s | sum / memcpy | in place / memcpy |\n");
  for (int type = 0; type < kElementTypes; ++type) {
    const Arithmetic sum{static_cast<ElementType>(type), kSum, 1};
    double copy = 0, apart = 0, in_place = 0;
    for (int round = 0; round < rounds; ++round) {
      copy = std::max(copy, gb_per_s(bytes, [&] { memcpy(out.data(), a.data(), bytes); }));
      apart = std::max(
          apart, gb_per_s(bytes, [&] { reduce(sum, a.data(), b.data(), out.data(), bytes); }));
      in_place = std::max(
          in_place, gb_per_s(bytes, [&] { reduce(sum, a.data(), out.data(), out.data(), bytes); }));
    }
    printf("| %s | %.1f | %.1f | %.1f | %.2f | %.2f |\n", kNames[type], copy, apart, in_place,
           apart / copy, in_place / copy);
    fflush(stdout);
  }
  return 0;
}
