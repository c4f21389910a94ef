// Reductions of the CPU: vectors of every width, and what comes in fragments, against the
// reference. The reference itself is held against numpy in tests/unit/schedule.
#include <algorithm>
#include <numeric>

#include "reduce_scene.h"
#include "unpack/unpacker.h"

using namespace tcpx;

namespace {

std::vector<VectorWidth> widths() {
  std::vector<VectorWidth> all;
  for (int width = 0; width <= static_cast<int>(widest_vectors()); ++width) {
    all.push_back(static_cast<VectorWidth>(width));
  }
  return all;
}

// A received chunk in a bounce buffer, cut at `cuts`, its fragments listed in any order.
struct Scattered {
  Scattered(const std::vector<uint8_t>& received, const std::vector<uint64_t>& cuts,
            std::mt19937& random)
      : bounce(3 * received.size() + 16 * cuts.size() + 16) {
    uint64_t at = 0, next = 1 + random() % 7;
    for (const uint64_t cut : cuts) {
      fragments.push_back({static_cast<uint32_t>(next), static_cast<uint32_t>(cut - at), at});
      memcpy(bounce.data() + next, received.data() + at, cut - at);
      next += cut - at + random() % 9;
      at = cut;
    }
    std::shuffle(fragments.begin(), fragments.end(), random);
  }
  UnpackSource source() const { return {fragments.data(), fragments.size(), bounce.data()}; }
  std::vector<uint8_t> bounce;
  std::vector<NetUnpackFragment> fragments;
};

std::vector<uint64_t> random_cuts(size_t bytes, size_t longest, std::mt19937& random) {
  std::vector<uint64_t> cuts;
  for (uint64_t at = 0; at < bytes;) {
    at = std::min<uint64_t>(bytes, at + 1 + random() % longest);
    cuts.push_back(at);
  }
  return cuts;
}

std::vector<uint8_t> expected_of(const Arithmetic& arithmetic, const std::vector<uint8_t>& a,
                                 const std::vector<uint8_t>& b) {
  std::vector<uint8_t> expected(a.size());
  reduce_reference(arithmetic, a.data(), b.data(), expected.data(), a.size());
  return expected;
}

}  // namespace

TEST(the_widest_vectors_of_this_cpu_are_found) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool some = __builtin_cpu_supports("avx2");
  CHECK(widest_vectors() == (wide   ? VectorWidth::k512
                             : some ? VectorWidth::k256
                                    : VectorWidth::kLeast));
#endif
}

TEST(vectors_of_every_width_give_the_bits_of_the_reference) {
  std::mt19937 random(1);
  each_arithmetic([&](const Arithmetic& arithmetic) {
    const size_t size = element_bytes(arithmetic.type);
    for (const size_t count : {0, 1, 3, 64, 1001}) {
      const auto a = random_elements(arithmetic.type, count * size, random);
      const auto b = random_elements(arithmetic.type, count * size, random);
      std::vector<uint8_t> scaled(a.size());
      scale_reference(arithmetic, a.data(), scaled.data(), a.size());
      for (const VectorWidth width : widths()) {
        std::vector<uint8_t> out(a.size());
        reduce_with(width, arithmetic, a.data(), b.data(), out.data(), a.size());
        CHECK_EQ(element_difference(arithmetic.type, out, expected_of(arithmetic, a, b)), "");
        scale_with(width, arithmetic, a.data(), out.data(), a.size());
        CHECK_EQ(element_difference(arithmetic.type, out, scaled), "");
      }
    }
  });
}

TEST(the_result_may_replace_either_operand_at_any_address) {
  std::mt19937 random(2);
  each_arithmetic([&](const Arithmetic& arithmetic) {
    const size_t bytes = 333 * element_bytes(arithmetic.type);
    const auto a = random_elements(arithmetic.type, bytes, random);
    const auto b = random_elements(arithmetic.type, bytes, random);
    for (const VectorWidth width : widths()) {
      for (const bool replaces_a : {true, false}) {
        std::vector<uint8_t> room(bytes + 1, 0x77);
        uint8_t* out = room.data() + 1;  // no multiple of anything
        memcpy(out, replaces_a ? a.data() : b.data(), bytes);
        reduce_with(width, arithmetic, replaces_a ? out : a.data(), replaces_a ? b.data() : out,
                    out, bytes);
        CHECK_EQ(room[0], 0x77);
        CHECK_EQ(
            element_difference(arithmetic.type, {out, out + bytes}, expected_of(arithmetic, a, b)),
            "");
      }
    }
  });
}

// Such a result goes past the cache, but for its ends; `at`: where it begins in a line.
TEST(a_result_that_no_cache_holds_has_the_same_bits) {
  const size_t bytes = (size_t{16} << 20) + 264;
  std::mt19937 random(7);
  std::vector<uint8_t> a(bytes), b(bytes), padded(bytes + 64 + 64);
  for (size_t i = 0; i < bytes; i += 4) {
    const auto value = static_cast<uint32_t>(random());
    memcpy(&a[i], &value, 4);
    memcpy(&b[i], &value, 2);
  }
  const Arithmetic sum{kUint64, kSum, 1};
  const std::vector<uint8_t> expected = expected_of(sum, a, b);
  for (const size_t at : {size_t{8}, size_t{3}}) {
    std::fill(padded.begin(), padded.end(), 0xa5);
    uint8_t* line = padded.data() + (64 - reinterpret_cast<uintptr_t>(padded.data()) % 64) % 64;
    uint8_t* out = line + at;
    for (const VectorWidth width : {VectorWidth::kLeast, widest_vectors()}) {
      reduce_with(width, sum, a.data(), b.data(), out, bytes);
      CHECK(memcmp(out, expected.data(), bytes) == 0);
      CHECK_EQ(int(out[-1]), 0xa5);
      CHECK_EQ(int(out[bytes]), 0xa5);
      memset(out, 0, bytes);
    }
  }
}

TEST(what_rounds_beyond_the_largest_number_is_infinity_or_nan) {
  const auto sum = [](ElementType type, unsigned a, unsigned b) {
    unsigned out = 0;
    reduce_reference(make_arithmetic(type, kSum, 1), reinterpret_cast<uint8_t*>(&a),
                     reinterpret_cast<uint8_t*>(&b), reinterpret_cast<uint8_t*>(&out),
                     element_bytes(type));
    return out;
  };
  CHECK_EQ(sum(kF8e4m3, 0x7e, 0x58), 0x7eu);  // 448 + 16: half-way to what is not there, even
  CHECK_EQ(sum(kF8e4m3, 0x7e, 0x59), 0x7fu);  // 448 + 18
  CHECK_EQ(sum(kF8e4m3, 0xfe, 0xfe), 0xffu);  // -896
  CHECK_EQ(sum(kF8e5m2, 0x7b, 0x6b), 0x7bu);  // 57344 + 3584
  CHECK_EQ(sum(kF8e5m2, 0x7b, 0x6c), 0x7cu);  // 57344 + 4096
  CHECK_EQ(sum(kHalf, 0x7bff, 0x7bff), 0x7c00u);
  CHECK_EQ(sum(kHalf, 0x0001, 0x0001), 0x0002u);  // subnormal
  CHECK_EQ(sum(kBfloat16, 0x7f7f, 0x7f7f), 0x7f80u);
}

TEST(integers_are_modulo_and_an_average_is_cut_off) {
  const auto scaled = [](ElementType type, int op, double factor, int a) {
    int out = 0;
    scale_reference(make_arithmetic(type, op, factor), reinterpret_cast<uint8_t*>(&a),
                    reinterpret_cast<uint8_t*>(&out), element_bytes(type));
    return out;
  };
  CHECK_EQ(scaled(kInt8, kMulsum, 2, 100) & 0xff, 200);
  CHECK_EQ(scaled(kInt32, kMulsum, 2, 0x7fffffff), -2);
  CHECK_EQ(scaled(kInt32, kAvg, 2, -7), -3);
  CHECK_EQ(static_cast<int8_t>(scaled(kInt8, kAvg, 2, -7)), -3);
  CHECK_EQ(scaled(kInt8, kAvg, 300, 127), 0);  // more ranks than the type can count
  CHECK_EQ(scaled(kInt32, kAvg, 1, 0x7fffffff), 0x7fffffff);
}

TEST(arithmetic_that_cannot_be_is_refused) {
  CHECK_THROWS(make_arithmetic(12, 0, 1), std::invalid_argument, "type of elements 12");
  CHECK_THROWS(make_arithmetic(-1, 0, 1), std::invalid_argument, "type of elements -1");
  CHECK_THROWS(make_arithmetic(0, 6, 1), std::invalid_argument, "operation of a reduction 6");
  CHECK_THROWS(make_arithmetic(kFloat, kAvg, 0), std::invalid_argument, "factor of 0");
  CHECK_THROWS(make_arithmetic(kInt32, kMulsum, 0.5), std::invalid_argument, "factor of 0.5");
}

// Fragments of every length: of one byte, so that each element lies in several of them, to all.
TEST(fragments_are_reduced_as_if_they_had_been_put_together_first) {
  std::mt19937 random(3);
  each_arithmetic([&](const Arithmetic& arithmetic) {
    const size_t bytes = 240 * element_bytes(arithmetic.type);
    for (const size_t longest : {size_t{1}, size_t{5}, size_t{97}, bytes}) {
      const auto received = random_elements(arithmetic.type, bytes, random);
      const auto local = random_elements(arithmetic.type, bytes, random);
      const Scattered scattered(received, random_cuts(bytes, longest, random), random);
      const auto expected = expected_of(arithmetic, received, local);
      std::vector<uint8_t> apart(bytes), in_place = local;
      const UnpackResult result =
          reduce_fragments(arithmetic, scattered.source(), local.data(), apart.data(), bytes);
      CHECK(result.in_bounds);
      CHECK_EQ(result.bytes, bytes);
      CHECK_EQ(element_difference(arithmetic.type, apart, expected), "");
      reduce_fragments(arithmetic, scattered.source(), in_place.data(), in_place.data(), bytes);
      CHECK_EQ(element_difference(arithmetic.type, in_place, expected), "");
    }
  });
}

TEST(fragments_that_end_beyond_what_was_posted_are_told_and_nothing_is_reduced) {
  const std::vector<uint8_t> bounce(64, 1), local(64, 2);
  const NetUnpackFragment fragments[] = {{0, 32, 0}, {32, 32, 36}};
  std::vector<uint8_t> out(64, 0x55);
  const UnpackResult result =
      reduce_fragments(make_arithmetic(kFloat, kSum, 1), {fragments, 2, bounce.data()},
                       local.data(), out.data(), 64);
  CHECK(!result.in_bounds);
  CHECK(out == std::vector<uint8_t>(64, 0x55));
}

TEST(an_element_of_which_a_byte_is_missing_stays_as_it_is) {
  const std::vector<uint8_t> bounce(64, 1), local(64, 2);
  const NetUnpackFragment fragments[] = {{0, 6, 0}, {16, 7, 9}};
  std::vector<uint8_t> out(16, 0x55);
  reduce_fragments(make_arithmetic(kInt32, kSum, 1), {fragments, 2, bounce.data()}, local.data(),
                   out.data(), 16);
  for (size_t i = 0; i < 16; ++i) CHECK_EQ(out[i], i < 4 || i >= 12 ? 3 : 0x55);
}

TEST(every_way_of_the_cpu_to_unpack_reduces_and_scales) {
  std::mt19937 random(4);
  const Arithmetic arithmetic = make_arithmetic(kHalf, kMulsum, 2);
  const size_t bytes = 5000;
  const auto received = random_elements(kHalf, bytes, random);
  const auto local = random_elements(kHalf, bytes, random);
  const Scattered scattered(received, random_cuts(bytes, 700, random), random);
  std::vector<uint8_t> scaled(bytes);
  scale_reference(arithmetic, local.data(), scaled.data(), bytes);
  for (const UnpackMode mode : {UnpackMode::kKernel, UnpackMode::kCopies, UnpackMode::kHost}) {
    const auto unpacker = make_cpu_unpacker(mode);
    unpacker->prepare(arithmetic);
    std::vector<uint8_t> out(bytes);
    const UnpackResult result =
        unpacker->submit_reduce(scattered.source(), local.data(), out.data(), bytes);
    CHECK_EQ(result.bytes, bytes);
    CHECK_EQ(element_difference(kHalf, out, expected_of(arithmetic, received, local)), "");
    unpacker->scale(out.data(), local.data(), bytes);
    CHECK_EQ(element_difference(kHalf, out, scaled), "");
    CHECK_EQ(unpacker->finished(), 2u);
  }
}

CHECK_MAIN()
