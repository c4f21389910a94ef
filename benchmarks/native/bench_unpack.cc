// What the CPU reference of the unpack costs beside memcpy of the same fragments.
//
// usage: bench_unpack [runs]
//
// Fragments lie in shuffled pages of a bounce pool, as softtcpx hands them out, and belong one
// behind the other at the destination. Three ways to get them there take turns: the reference, one
// memcpy a fragment by a list that is ready, and one memcpy of the same bytes from one block.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "engine/clock.h"
#include "memory/buffer.h"
#include "unpack/unpack.h"

namespace {

using namespace tcpx;

constexpr size_t kPage = 4096;
constexpr size_t kMessage = size_t{1} << 20;  // of one receive

struct Copy {
  uint8_t* to;
  const uint8_t* from;
  size_t bytes;
};

struct Work {
  std::vector<std::vector<NetUnpackFragment>> receives;
  std::vector<Copy> copies;  // the same
  size_t pages = 0;
};

// `total` bytes as receives of a MiB, in fragments of these lengths, of a page each.
Work work_of(size_t total, const std::vector<uint32_t>& lengths) {
  Work work;
  for (size_t start = 0; start < total; start += kMessage) {
    std::vector<NetUnpackFragment> list;
    for (size_t offset = 0; offset < kMessage; ++work.pages) {
      const size_t bytes =
          std::min<size_t>(lengths[list.size() % lengths.size()], kMessage - offset);
      list.push_back({0, static_cast<uint32_t>(bytes), offset});
      offset += bytes;
    }
    work.receives.push_back(std::move(list));
  }
  return work;
}

void place(Work& work, const uint8_t* bounce, uint8_t* destination) {
  std::vector<uint32_t> pages(work.pages);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  size_t next = 0;
  for (size_t k = 0; k < work.receives.size(); ++k) {
    for (NetUnpackFragment& fragment : work.receives[k]) {
      fragment.src_off = static_cast<uint32_t>(pages[next++] * kPage);
      work.copies.push_back(
          {destination + k * kMessage + fragment.dst_off, bounce + fragment.src_off, fragment.len});
    }
  }
}

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <class Call>
double gb_per_s(size_t bytes, size_t repeats, Call call) {
  const int64_t start = now_ns();
  for (size_t i = 0; i < repeats; ++i) call();
  return double(bytes * repeats) / double(now_ns() - start);
}

void measure(const char* name, size_t total, const std::vector<uint32_t>& lengths, int runs) {
  Work work = work_of(total, lengths);
  HostBuffer bounce(work.pages * kPage), block(total), destination(total);
  for (HostBuffer* buffer : {&bounce, &block}) {  // no two words alike
    auto* words = reinterpret_cast<uint32_t*>(buffer->data());
    std::iota(words, words + buffer->bytes() / sizeof(uint32_t), 0);
  }
  place(work, bounce.data(), destination.data());
  // As far as the compiler knows it may be any function: no loop of copies becomes one copy.
  void* (*volatile copy)(void*, const void*, size_t) = &memcpy;

  const auto reference = [&] {
    for (size_t k = 0; k < work.receives.size(); ++k) {
      const auto& list = work.receives[k];
      const UnpackSource source{list.data(), list.size(), bounce.data()};
      const UnpackResult result =
          unpack_reference(source, destination.data() + k * kMessage, kMessage);
      if (!result.in_bounds || result.bytes != kMessage) abort();
    }
  };
  const auto fragments = [&] {
    for (const Copy& c : work.copies) copy(c.to, c.from, c.bytes);
  };
  const auto contiguous = [&] { copy(destination.data(), block.data(), total); };

  fragments();
  const std::vector<uint8_t> expected(destination.data(), destination.data() + total);
  contiguous();
  reference();
  if (memcmp(expected.data(), destination.data(), total) != 0) {
    fprintf(stderr, "the reference and memcpy of the same fragments differ\n");
    exit(1);
  }

  // About 4 ms a turn at 16 GB/s.
  const size_t repeats = std::max<size_t>(1, (size_t{64} << 20) / total);
  std::vector<double> ours, same, plain, to_same, to_plain;
  for (int run = 0; run < runs; ++run) {
    ours.push_back(gb_per_s(total, repeats, reference));
    same.push_back(gb_per_s(total, repeats, fragments));
    plain.push_back(gb_per_s(total, repeats, contiguous));
    to_same.push_back(ours.back() / same.back());
    to_plain.push_back(ours.back() / plain.back());
  }
  printf(
      "%-4s %2zu MiB: reference %5.1f GB/s, memcpy of fragments %5.1f GB/s, of one block %5.1f "
      "GB/s, ratios %.2f %.2f\n",
      name, total >> 20, median(ours), median(same), median(plain), median(to_same),
      median(to_plain));
}

}  // namespace

int main(int count, char** arguments) {
  const int runs = count > 1 ? std::max(1, atoi(arguments[1])) : 101;
  for (const size_t mib : {1, 64}) {
    measure("page", mib << 20, {4096}, runs);
    measure("mss", mib << 20, {4096, 4096, 856}, runs);
  }
  return 0;
}
