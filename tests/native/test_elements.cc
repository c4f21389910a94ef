// Elements that ranks reduce: any order of a reduction gives what must come out, every wrong one is
// counted, and a GPU writes and judges as the CPU does. With TCPX_MPI_REAL_GPU set, on a real one.
#include <algorithm>
#include <memory>
#include <numeric>

#include "fake_gpu.h"
#include "memory/cuda_slots.h"
#include "reduce_scene.h"

using namespace tcpx;

namespace {

constexpr uint64_t kSeed = 77;
constexpr uint64_t kIteration = 5;

template <typename Use>
void each_group(const std::vector<uint32_t>& ranks, Use&& use) {
  for (int type = 0; type < kElementTypes; ++type) {
    for (int op = kNoReduceOp; op < kReduceOps; ++op) {
      for (const uint32_t n : ranks) use(ElementGroup(type, op, n));
    }
  }
}

std::string name_of(const ElementGroup& group) {
  return std::string(kTypeNames[group.rule.type]) + ", operation " + std::to_string(group.rule.op) +
         ", " + std::to_string(group.rule.ranks) + " ranks";
}

// What rank `index` puts in: `n` elements from `first` on.
std::vector<uint8_t> input_of(const ElementGroup& group, uint32_t index, size_t n,
                              uint64_t first = 0) {
  HostSlots slots(n * group.bytes());
  slots.cut(n * group.bytes(), 0, n * group.bytes(), 1);
  const PayloadSpan span{0, n * group.bytes(), index, first * group.bytes()};
  slots.fill(0, 1, kIteration, kSeed, &span, 1, group);
  return {slots.data(), slots.data() + n * group.bytes()};
}

ElementVerdict verdict_of(const ElementGroup& group, const std::vector<uint8_t>& result,
                          uint64_t first = 0) {
  HostSlots slots(result.size());
  slots.cut(result.size(), 0, result.size(), 1);
  memcpy(slots.data(), result.data(), result.size());
  const PayloadSpan span{0, result.size(), 0, first * group.bytes()};
  return slots.verify(0, 1, kIteration, kSeed, &span, 1, group);
}

std::string text(const ElementVerdict& v) {
  std::string all =
      std::to_string(v.wrong) + " wrong, " + std::to_string(v.guard_wrong) + " behind";
  if (!v.has_first) return all;
  return all + ", first in slot " + std::to_string(v.slot) + " at " + std::to_string(v.offset) +
         ", element " + std::to_string(v.element) + " of " + std::to_string(v.sender) + ": " +
         std::to_string(v.found) + " for " + std::to_string(v.expected);
}

// The same slots on both sides.
struct BothSides {
  BothSides(size_t used, size_t guard, size_t stride, size_t count)
      : bytes((stride * count + 4095) / 4096 * 4096), memory(test_gpu(), bytes + 4096) {
    begin = (memory.address() + 4095) / 4096 * 4096;
    gpu = std::make_unique<CudaSlots>(begin, bytes, 0);
    host = std::make_unique<HostSlots>(bytes);
    copy_now(begin, reinterpret_cast<CudaAddress>(host->data()), bytes);
    gpu->cut(used, guard, stride, count);
    host->cut(used, guard, stride, count);
  }
  bool equal() const {
    std::vector<uint8_t> on_gpu(bytes);
    gpu->read(on_gpu.data(), 0, bytes);
    return std::equal(on_gpu.begin(), on_gpu.end(), host->data());
  }
  void flip(size_t at) {
    host->data()[at] ^= 0x10;
    copy_now(begin + at, reinterpret_cast<CudaAddress>(host->data() + at), 1);
  }
  size_t bytes;
  GpuMemory memory;
  CudaAddress begin;
  std::unique_ptr<CudaSlots> gpu;
  std::unique_ptr<HostSlots> host;
};

}  // namespace

// The proof of the ranges: pairs in any order and grouping, by the arithmetic of the engine.
TEST(any_order_of_a_reduction_gives_what_must_come_out) {
  std::mt19937 random(1);
  constexpr size_t kElements = 300;
  each_group({1, 2, 3, 4, 7, 8, 17, 64, 100}, [&](const ElementGroup& group) {
    if (group.rule.op == kNoReduceOp) return;
    const auto op = static_cast<ReduceOp>(group.rule.op);
    const auto type = static_cast<ElementType>(group.rule.type);
    for (int order = 0; order < 3; ++order) {
      std::vector<std::vector<uint8_t>> parts;
      for (uint32_t rank = 0; rank < group.rule.ranks; ++rank) {
        parts.push_back(input_of(group, rank, kElements));
        if (op == kMulsum) {
          scale_reference({type, op, 1.0 + rank % 2}, parts[rank].data(), parts[rank].data(),
                          parts[rank].size());
        }
      }
      std::shuffle(parts.begin(), parts.end(), random);
      while (parts.size() > 1) {
        const size_t into = random() % (parts.size() - 1);
        auto& last = parts.back();
        reduce_reference({type, op, 1}, last.data(), parts[into].data(), parts[into].data(),
                         last.size());
        parts.pop_back();
      }
      if (op == kAvg) {
        scale_reference({type, op, double(group.rule.ranks)}, parts[0].data(), parts[0].data(),
                        parts[0].size());
      }
      for (size_t i = 0; i < kElements; ++i) {
        if (is_finite(type, &parts[0][i * group.bytes()])) continue;
        check::fail(__FILE__, __LINE__, name_of(group) + ": no number in " + std::to_string(i));
      }
      const ElementVerdict verdict = verdict_of(group, parts[0]);
      if (verdict.wrong > 0) {
        check::fail(__FILE__, __LINE__, name_of(group) + ": " + text(verdict));
      }
    }
  });
}

TEST(blocks_of_elements_are_those_that_are_specified_one_by_one) {
  constexpr size_t kElements = 1500;  // more than a block
  for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 32) - 700}) {
    each_group({1, 3, 40, 100}, [&](const ElementGroup& group) {
      if (group.rule.op == kNoReduceOp) return;
      const auto keys = element_keys(group, kSeed, kIteration);
      const size_t size = group.bytes();
      const uint32_t rank = group.rule.ranks / 2;
      const auto input = input_of(group, rank, kElements, first);
      std::vector<uint8_t> result(kElements * size);
      for (size_t i = 0; i < kElements; ++i) {
        const uint64_t bits = element_result(group.rule, keys.data(), first + i);
        memcpy(&result[i * size], &bits, size);
        const uint64_t put_in = element_input(group.rule, keys.data(), rank, first + i);
        if (memcmp(&input[i * size], &put_in, size) != 0) {
          check::fail(__FILE__, __LINE__, name_of(group) + ": input " + std::to_string(i));
          break;
        }
      }
      CHECK_EQ(verdict_of(group, result, first).wrong, 0u);
    });
  }
}

TEST(bytes_that_are_only_moved_are_those_of_the_payload) {
  for (int type = 0; type < kElementTypes; ++type) {
    const ElementGroup group(type, kNoReduceOp, 4, {10, 11, 12, 13});
    const size_t bytes = 700 * group.bytes();
    std::vector<uint8_t> payload(bytes);
    payload_generate(payload.data(), bytes, payload_key(kSeed, 12, kIteration), 40);
    CHECK(input_of(group, 2, 700, 40 / group.bytes()) == payload);
    const auto keys = element_keys(group, kSeed, kIteration);
    for (size_t i = 0; i < 700; ++i) {
      uint64_t bits = payload_element(type, keys[2], 40 / group.bytes() + i);
      CHECK_EQ(memcmp(&bits, &payload[i * group.bytes()], group.bytes()), 0);
    }
  }
}

TEST(what_one_rank_did_not_add_or_added_twice_is_found) {
  constexpr size_t kElements = 2000;
  each_group({2, 8, 16, 100}, [&](const ElementGroup& group) {
    const auto op = static_cast<ReduceOp>(group.rule.op);
    if (op != kSum && op != kProd) return;
    const auto type = static_cast<ElementType>(group.rule.type);
    std::vector<uint8_t> sum = input_of(group, 0, kElements);
    for (uint32_t rank = 1; rank < group.rule.ranks; ++rank) {
      const auto input = input_of(group, rank, kElements);
      const int times = rank == group.rule.ranks - 1 ? 2 : 1;
      for (int k = 0; k < times; ++k) {
        reduce_reference({type, op, 1}, input.data(), sum.data(), sum.data(), sum.size());
      }
    }
    CHECK_LT(10u, verdict_of(group, sum).wrong);
  });
}

TEST(poison_is_wrong_in_every_element_and_the_first_is_named) {
  each_group({3, 100}, [&](const ElementGroup& group) {
    const size_t size = group.bytes();
    const size_t used = 1100 * size;
    HostSlots slots(2 * (used + 64));
    slots.cut(used, 64, used + 64, 2);
    const PayloadSpan span{8 * size, 1000 * size, 1, 16 * size};
    slots.poison(0, 2, kIteration, kSeed, &span, 1, group);
    ElementVerdict verdict = slots.verify(0, 2, kIteration, kSeed, &span, 1, group);
    CHECK_EQ(verdict.wrong, 2000u);
    CHECK_EQ(verdict.guard_wrong, 0u);
    CHECK_EQ(verdict.slot, 0u);
    CHECK_EQ(verdict.offset, 8 * size);
    CHECK_EQ(verdict.element, 16u);
    CHECK_EQ(verdict.sender, group.rule.op == kNoReduceOp ? 1u : kNoSender);
    CHECK_EQ(verdict.found, ~verdict.expected & (~uint64_t{0} >> (64 - 8 * size)));
    slots.data()[used + 3] ^= 1;
    verdict = slots.verify(0, 1, kIteration, kSeed, &span, 1, group);
    CHECK_EQ(verdict.guard_wrong, 1u);
  });
}

TEST(a_slot_of_another_iteration_or_group_is_wrong) {
  const ElementGroup group(kFloat, kSum, 4), others(kFloat, kSum, 4, {4, 5, 6, 7});
  const auto keys = element_keys(others, kSeed, kIteration);
  std::vector<float> result(500);
  for (size_t i = 0; i < result.size(); ++i) {
    const uint64_t bits = element_result(others.rule, keys.data(), i);
    memcpy(&result[i], &bits, sizeof(float));
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(result.data());
  const std::vector<uint8_t> all(bytes, bytes + 4 * result.size());
  CHECK_EQ(verdict_of(others, all).wrong, 0u);
  CHECK_LT(490u, verdict_of(group, all).wrong);
}

TEST(what_is_not_made_of_whole_elements_or_of_no_rank_is_refused) {
  HostSlots slots(4096);
  slots.cut(4096, 0, 4096, 1);
  const ElementGroup group(kFloat, kSum, 4);
  const auto fill = [&](PayloadSpan span) { slots.fill(0, 1, 0, 0, &span, 1, group); };
  CHECK_THROWS(fill({2, 8, 0, 0}), std::invalid_argument, "span 0 is not made of elements of 4");
  CHECK_THROWS(fill({0, 7, 0, 0}), std::invalid_argument, "not made of elements");
  CHECK_THROWS(fill({0, 8, 0, 2}), std::invalid_argument, "not made of elements");
  CHECK_THROWS(fill({0, 8, 4, 0}), std::invalid_argument, "no rank 4 of 4");
  CHECK_THROWS(ElementGroup(kFloat, kSum, 0), std::invalid_argument, "no ranks");
  CHECK_THROWS(ElementGroup(kFloat, kSum, 2, {1}), std::invalid_argument, "1 origins of 2");
  CHECK_THROWS(ElementGroup(12, kSum, 2), std::invalid_argument, "type of elements 12");
  CHECK_THROWS(ElementGroup(0, 6, 2), std::invalid_argument, "operation of a reduction 6");
}

TEST(a_gpu_writes_and_judges_as_the_cpu_does) {
  std::mt19937 random(4);
  each_group({1, 5, 90}, [&](const ElementGroup& group) {
    const size_t size = group.bytes();
    const size_t used = size * (1 + random() % 900);
    const size_t guard = random() % 5 * size;
    const size_t stride = used + guard + size * (random() % 3);
    BothSides sides(used, guard, stride, 2);
    std::vector<PayloadSpan> spans;
    for (uint64_t at = size * (random() % 2); at < used;) {
      const uint64_t bytes = std::min<uint64_t>(used - at, size * (random() % 400));
      const uint64_t from = random() % 2 == 0 ? random() % 100 : (uint64_t{1} << 32) - 50;
      spans.push_back({at, bytes, static_cast<uint32_t>(random() % group.rule.ranks), size * from});
      at += bytes + size * (random() % 3);
    }
    const auto n = spans.size();
    const auto each = [&](auto&& use) {
      use(*sides.gpu);
      use(*sides.host);
    };
    each([&](SlotMemory& m) { m.fill(0, 2, 3, kSeed, spans.data(), n, group); });
    if (!sides.equal()) check::fail(__FILE__, __LINE__, name_of(group) + ": filled");
    each([&](SlotMemory& m) { m.poison(0, 2, 3, kSeed, spans.data(), n, group); });
    if (!sides.equal()) check::fail(__FILE__, __LINE__, name_of(group) + ": poisoned");
    // Poison of poison is right: all but what is changed then.
    for (size_t k = 0; k < 2; ++k) {
      for (const PayloadSpan& span : spans) {
        for (uint64_t i = 0; i < span.bytes; ++i)
          sides.host->data()[k * stride + span.offset + i] ^= 0xff;
      }
    }
    copy_now(sides.begin, reinterpret_cast<CudaAddress>(sides.host->data()), sides.bytes);
    for (int wrong = 0; wrong < 3; ++wrong) {
      const auto on_gpu = sides.gpu->verify(0, 2, 3, kSeed, spans.data(), n, group);
      const auto on_host = sides.host->verify(0, 2, 3, kSeed, spans.data(), n, group);
      CHECK_EQ(text(on_gpu), text(on_host));
      if (wrong == 0) CHECK_EQ(on_host.wrong + on_host.guard_wrong, 0u);
      sides.flip(random() % (2 * stride));
    }
  });
}

CHECK_MAIN()
