// What the engine itself costs: nanoseconds a chunk over a plugin whose calls complete at once.
//
// usage: bench_engine PATH/libnccl-net-null.so [runs]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "engine_over_null.h"

namespace {

using namespace tcpx;

constexpr NullRow kRow = {/*steps=*/8, /*channels=*/2, /*chunks=*/128, /*chunk_bytes=*/4096,
                          /*iterations=*/200};

double median_ns_a_chunk(EngineOverNull& engine, bool depend, int runs) {
  engine.load(depend);
  std::vector<double> results;
  for (int run = 0; run < runs; ++run) results.push_back(engine.ns_a_chunk());
  std::sort(results.begin(), results.end());
  return results[results.size() / 2];
}

void measure(const char* path, int runs) {
  EngineOverNull engine(path, kRow);
  median_ns_a_chunk(engine, false, 2);  // warm
  const double independent = median_ns_a_chunk(engine, false, runs);
  const double dependent = median_ns_a_chunk(engine, true, runs);
  printf("independent %.1f ns/chunk, dependent %.1f ns/chunk, ratio %.2f\n", independent, dependent,
         dependent / independent);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    fprintf(stderr, "usage: %s PATH/libnccl-net-null.so [runs]\n", arguments[0]);
    return 2;
  }
  try {
    measure(arguments[1], count > 2 ? std::max(1, atoi(arguments[2])) : 15);
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
