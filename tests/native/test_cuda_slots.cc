// Slots in GPU memory: the bytes and the verdicts of the CPU, and checks before a plugin sees them.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/gpu.h"
#include "fake_gpu.h"
#include "memory/cuda_slots.h"

using namespace tcpx;

namespace {

constexpr uint64_t kSeed = 77;

// GPU memory from a page on, of whole pages.
struct Pages {
  explicit Pages(size_t bytes_, int gpu = 0) : bytes((bytes_ + 4095) / 4096 * 4096) {
    memory = std::make_unique<GpuMemory>(test_gpu(gpu), bytes + 4096);
    begin = (memory->address() + 4095) / 4096 * 4096;
  }
  size_t bytes;
  std::unique_ptr<GpuMemory> memory;
  CudaAddress begin;
};

// The same slots on both sides.
struct Pair {
  Pair(size_t used, size_t guard, size_t stride, size_t count)
      : pages(stride * count), gpu(pages.begin, pages.bytes, 0), host(pages.bytes) {
    copy_now(pages.begin, reinterpret_cast<CudaAddress>(host.data()), pages.bytes);
    gpu.cut(used, guard, stride, count);
    host.cut(used, guard, stride, count);
  }
  std::vector<uint8_t> on_gpu() const {
    std::vector<uint8_t> bytes(pages.bytes);
    gpu.read(bytes.data(), 0, bytes.size());
    return bytes;
  }
  bool equal() const {
    const auto bytes = on_gpu();
    return std::equal(bytes.begin(), bytes.end(), host.data());
  }
  // One byte, on both sides.
  void set(size_t at, uint8_t byte) {
    host.data()[at] = byte;
    copy_now(pages.begin + at, reinterpret_cast<CudaAddress>(&byte), 1);
  }
  Pages pages;
  CudaSlots gpu;
  HostSlots host;
};

std::string text(const SlotVerdict& v) {
  std::string all =
      std::to_string(v.wrong) + " wrong, " + std::to_string(v.guard_wrong) + " behind";
  if (!v.has_first) return all;
  return all + ", first in slot " + std::to_string(v.slot) + " at " + std::to_string(v.offset) +
         " of " + std::to_string(v.sender) + ": " + std::to_string(v.found) + " for " +
         std::to_string(v.expected);
}

// Random stretches, at any offset of slot and sender, some empty, one long.
std::vector<PayloadSpan> random_spans(std::mt19937& random, size_t used) {
  std::vector<PayloadSpan> spans;
  for (uint64_t at = random() % 7; at < used;) {
    const uint64_t left = used - at;
    const uint64_t bytes =
        std::min<uint64_t>(left, random() % 3 == 0 ? random() % 90000 : random() % 40);
    const uint64_t from = random() % 2 == 0 ? random() % 100 : (uint64_t{1} << 34) - random() % 100;
    spans.push_back({at, bytes, static_cast<uint32_t>(random() % 5), from});
    at += bytes + random() % 3;
  }
  return spans;
}

}  // namespace

TEST(random_slots_hold_the_bytes_of_the_cpu_filled_or_poisoned) {
  std::mt19937 random(1);
  for (int round = 0; round < 12; ++round) {
    const size_t used = 1 + random() % (round % 3 == 0 ? 200000 : 3000);
    const size_t guard = random() % 70;
    const size_t count = 1 + random() % 4;
    Pair pair(used, guard, used + guard + random() % 50, count);
    const auto spans = random_spans(random, used);
    pair.gpu.fill(0, count, 9, kSeed, spans.data(), spans.size());
    pair.host.fill(0, count, 9, kSeed, spans.data(), spans.size());
    CHECK(pair.equal());
    pair.gpu.poison(0, count, 9, kSeed, spans.data(), spans.size());
    pair.host.poison(0, count, 9, kSeed, spans.data(), spans.size());
    CHECK(pair.equal());
  }
}

TEST(a_verdict_is_that_of_the_cpu_for_any_wrong_bytes) {
  std::mt19937 random(2);
  for (int round = 0; round < 12; ++round) {
    const size_t used = 1 + random() % (round % 3 == 0 ? 150000 : 500);
    const size_t guard = random() % 70;
    const size_t stride = used + guard;
    const size_t count = 1 + random() % 5;
    Pair pair(used, guard, stride, count);
    const auto spans = random_spans(random, used);
    const auto n = spans.size();
    pair.gpu.poison(0, count, 3, kSeed, spans.data(), n);
    pair.host.poison(0, count, 3, kSeed, spans.data(), n);
    CHECK_EQ(text(pair.gpu.verify(0, count, 3, kSeed, spans.data(), n)),
             text(pair.host.verify(0, count, 3, kSeed, spans.data(), n)));
    pair.gpu.fill(0, count, 3, kSeed, spans.data(), n);
    pair.host.fill(0, count, 3, kSeed, spans.data(), n);
    CHECK_EQ(text(pair.gpu.verify(0, count, 3, kSeed, spans.data(), n)), text(SlotVerdict{}));
    for (int wrong = 0; wrong < 4; ++wrong) {
      pair.set(random() % (stride * count), static_cast<uint8_t>(random()));
      CHECK_EQ(text(pair.gpu.verify(0, count, 3, kSeed, spans.data(), n)),
               text(pair.host.verify(0, count, 3, kSeed, spans.data(), n)));
    }
    // Data of another iteration, and of the slots behind the first.
    CHECK_EQ(text(pair.gpu.verify(0, count, 4, kSeed, spans.data(), n)),
             text(pair.host.verify(0, count, 4, kSeed, spans.data(), n)));
    CHECK_EQ(text(pair.gpu.verify(count - 1, 1, 3 + count - 1, kSeed, spans.data(), n)),
             text(pair.host.verify(count - 1, 1, 3 + count - 1, kSeed, spans.data(), n)));
  }
}

TEST(slots_of_one_gpu_leave_another_current) {
  test_gpu(0);
  if (gpus().size() < 2) SKIP_FOR("two-gpus: one of them stays current");
  const Pages pages(4096, 1);
  test_gpu(0);  // current from here on
  const PayloadSpan all{0, 4000, 0, 0};
  {
    CudaSlots slots(pages.begin, pages.bytes, 1);
    CHECK_EQ(current_gpu(), 0);
    slots.cut(4000, 96, 4096, 1);
    slots.fill(0, 1, 0, kSeed, &all, 1);
    slots.poison(0, 1, 0, kSeed, &all, 1);
    CHECK_EQ(current_gpu(), 0);
    CHECK_LT(uint64_t{3900}, slots.verify(0, 1, 0, kSeed, &all, 1).wrong);
    CHECK_EQ(current_gpu(), 0);
  }
  CHECK_EQ(current_gpu(), 0);
}

TEST(memory_that_no_plugin_may_have_is_refused_with_the_reason) {
  const Pages pages(8192);
  std::vector<uint8_t> host(8192);
  const auto on_host = reinterpret_cast<CudaAddress>(host.data());
  CHECK_THROWS(CudaSlots(on_host, 4096, 0), std::invalid_argument, "no GPU has memory there");
  CHECK_THROWS(CudaSlots(pages.begin + 512, 4096, 0), std::invalid_argument, "multiple of 4096");
  CHECK_THROWS(CudaSlots(pages.begin, 4095, 0), std::invalid_argument, "multiple of 4096 long");
  CHECK_THROWS(CudaSlots(pages.begin, 0, 0), std::invalid_argument, "multiple of 4096 long");
  CHECK_THROWS(CudaSlots(pages.begin, 1 << 20, 0), std::invalid_argument, "beyond its allocation");
  if (gpus().size() > 1) {  // the fake driver has two
    CHECK_THROWS(CudaSlots(pages.begin, 4096, 1), std::invalid_argument, "on GPU 0, not on GPU 1");
  }
  CudaSlots slots(pages.begin, pages.bytes, 0);
  CHECK_THROWS(slots.cut(4096, 1, 4096, 2), std::invalid_argument, "do not fit");
  slots.cut(4096, 0, 4096, 2);
  CHECK_THROWS(slots.fill(1, 2, 0, 0, nullptr, 0), std::invalid_argument, "no such slots");
}

CHECK_MAIN()
