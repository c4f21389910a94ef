// What it costs to look, in the timed loop, at which CPU it runs: nanoseconds a chunk with and
// without, in rows of 1 MiB over a plugin whose calls complete at once.
//
// The loop asks sched_getcpu() alone; this program is linked with --wrap=sched_getcpu, so that in
// every other batch the question is answered without being asked.
//
// usage: bench_proof PATH/libnccl-net-null.so [pairs of batches]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "engine_over_null.h"

namespace {

using namespace tcpx;

// As a rank of a ring has it: a message of 1 MiB in, one out, in the default chunks.
constexpr NullRow kRow = {/*steps=*/2, /*channels=*/2, /*chunks=*/2, /*chunk_bytes=*/512 << 10,
                          /*iterations=*/20'000};

bool looking = true;
long looks = 0;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const char* path, int pairs) {
  EngineOverNull engine(path, kRow);
  engine.load(false);
  engine.ns_a_chunk();  // warm
  std::vector<double> with, without, ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    double ns[2];
    for (const bool look : {pair % 2 == 0, pair % 2 == 1}) {  // ABBA
      looking = look;
      ns[look] = engine.ns_a_chunk();
    }
    with.push_back(ns[1]);
    without.push_back(ns[0]);
    ratios.push_back(ns[1] / ns[0]);
  }
  printf("with %.2f ns/chunk, without %.2f ns/chunk, cost %.2f %%, looks %.4f a chunk\n",
         median(with), median(without), 100 * (median(ratios) - 1),
         double(looks) / ((pairs + 1) * kRow.chunks_in_all()));
}

}  // namespace

extern "C" int __real_sched_getcpu();
extern "C" int __wrap_sched_getcpu() {
  if (!looking) return 0;
  ++looks;
  return __real_sched_getcpu();
}

int main(int count, char** arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: %s PATH/libnccl-net-null.so [pairs of batches]\n", arguments[0]);
    return 2;
  }
  try {
    measure(arguments[1], count > 2 ? std::max(1, atoi(arguments[2])) : 401);
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
