// Unpacking by the CPU, the specification of every other way: each byte in its place, none beside.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "unpack/unpack.h"
#include "unpack/unpacker.h"

using namespace tcpx;

namespace {

constexpr uint8_t kGuard = 0xA5;
constexpr size_t kGuardBytes = 64;
constexpr uint32_t kPage = 4096;
constexpr UnpackMode kModes[] = {UnpackMode::kKernel, UnpackMode::kCopies, UnpackMode::kHost};

using Bytes = std::vector<uint8_t>;

std::vector<uint32_t> lengths() {
  std::vector<uint32_t> all(64);
  std::iota(all.begin(), all.end(), 1);
  all.insert(all.end(), {1460, 4095, 4096, 4097});
  return all;
}

// Never the guard's value: a byte that was not written cannot pass for one that was.
Bytes random_bytes(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Bytes bytes(count);
  for (uint8_t& byte : bytes) {
    do {
      byte = static_cast<uint8_t>(generator());
    } while (byte == kGuard);
  }
  return bytes;
}

// A destination at a chosen alignment between two guards, with all of its bytes unwritten.
class Target {
 public:
  Target(size_t bytes, size_t alignment)
      : alignment_(alignment), bytes_(bytes), memory_(bytes + 2 * kGuardBytes + 64, kGuard) {}

  uint8_t* data() {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kGuardBytes;
    return memory_.data() + kGuardBytes + (16 - address % 16) % 16 + alignment_;
  }

  // Where it differs from `expected` between its guards; "" where nowhere.
  std::string difference(const Bytes& expected) {
    const size_t begin = data() - memory_.data();
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin && i < begin + bytes_;
      if (memory_[i] != (inside ? expected[i - begin] : kGuard)) {
        return "byte " + std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(begin));
      }
    }
    return "";
  }

 private:
  size_t alignment_;
  size_t bytes_;
  Bytes memory_;
};

}  // namespace

TEST(every_alignment_of_source_and_destination_at_every_length_is_exact) {
  const Bytes bounce = random_bytes(3 * kPage, 1);
  for (const UnpackMode mode : kModes) {
    const auto unpacker = make_cpu_unpacker(mode);
    for (uint32_t from = 0; from < 16; ++from) {
      for (uint32_t to = 0; to < 16; ++to) {
        for (const uint32_t length : lengths()) {
          const NetUnpackFragment fragment{kPage + from, length, 0};
          Target target(length, to);
          const UnpackResult result =
              unpacker->submit({&fragment, 1, bounce.data()}, target.data(), length);
          const Bytes expected(bounce.begin() + kPage + from,
                               bounce.begin() + kPage + from + length);
          CHECK(result.in_bounds && result.bytes == length);
          const std::string wrong = target.difference(expected);
          CHECK_EQ(wrong.empty() ? wrong
                                 : wrong + ", source " + std::to_string(from) + ", destination " +
                                       std::to_string(to) + ", length " + std::to_string(length),
                   std::string());
        }
      }
    }
  }
}

TEST(fragments_of_every_length_in_shuffled_pages_and_in_any_order_make_one_message) {
  std::mt19937 generator(2);
  for (const UnpackMode mode : kModes) {
    const auto unpacker = make_cpu_unpacker(mode);
    for (size_t alignment = 0; alignment < 16; ++alignment) {
      std::vector<uint32_t> sizes = lengths();
      std::shuffle(sizes.begin(), sizes.end(), generator);
      std::vector<uint32_t> pages(sizes.size());  // two each: 4097 bytes and a ragged begin
      std::iota(pages.begin(), pages.end(), 0);
      std::shuffle(pages.begin(), pages.end(), generator);
      const Bytes bounce = random_bytes(2 * kPage * pages.size(), 3);

      std::vector<NetUnpackFragment> fragments;
      Bytes expected;
      for (size_t i = 0; i < sizes.size(); ++i) {
        const uint32_t source = 2 * kPage * pages[i] + generator() % 16;
        fragments.push_back({source, sizes[i], expected.size()});
        expected.insert(expected.end(), bounce.begin() + source,
                        bounce.begin() + source + sizes[i]);
      }
      std::shuffle(fragments.begin(), fragments.end(), generator);

      Target target(expected.size(), alignment);
      const UnpackResult result = unpacker->submit(
          {fragments.data(), fragments.size(), bounce.data()}, target.data(), expected.size());
      CHECK(result.in_bounds);
      CHECK_EQ(result.bytes, uint64_t{expected.size()});
      CHECK_EQ(target.difference(expected), std::string());
    }
  }
}

TEST(a_page_that_is_used_again_with_new_data_gives_the_new_data) {
  const auto queue = std::make_unique<NetUnpackQueue>();
  Bytes bounce(kPage);
  const NetUnpackDevice device{queue.get(), bounce.data(), 0};
  for (const UnpackMode mode : kModes) {
    const auto unpacker = make_cpu_unpacker(mode);
    Bytes memory(kPage);
    // Three times round the slots: the same page, the same slot and the same destination.
    for (uint64_t sequence = 0; sequence < 3 * kNetUnpackSlots; ++sequence) {
      const Bytes fresh = random_bytes(kPage, 100 + static_cast<unsigned>(sequence));
      std::copy(fresh.begin(), fresh.end(), bounce.begin());
      const uint64_t slot = sequence % kNetUnpackSlots;
      queue->mem[slot][0] = {0, kPage, 0};
      queue->cnt[slot] = 1;
      const UnpackResult result =
          unpacker->submit(unpack_source(device, sequence, kPage), memory.data(), kPage);
      CHECK_EQ(result.bytes, uint64_t{kPage});
      CHECK(memory == fresh);
    }
  }
}

TEST(what_no_fragment_covers_stays_as_it_is) {
  const Bytes bounce = random_bytes(kPage, 5);
  const NetUnpackFragment fragments[] = {{100, 5, 3}, {7, 2, 20}};
  for (const UnpackMode mode : kModes) {
    const auto unpacker = make_cpu_unpacker(mode);
    Target target(24, 1);
    Bytes expected(24, kGuard);
    for (const NetUnpackFragment& each : fragments) {
      std::copy_n(bounce.begin() + each.src_off, each.len, expected.begin() + each.dst_off);
    }
    CHECK(unpacker->submit({fragments, 2, bounce.data()}, target.data(), 24).in_bounds);
    CHECK_EQ(target.difference(expected), std::string());
  }
}

TEST(a_fragment_that_ends_beyond_what_was_posted_is_told_and_nothing_is_written) {
  const Bytes bounce = random_bytes(kPage, 4);
  const NetUnpackFragment cases[][2] = {
      {{0, 24, 0}, {24, 1, 24}},              // 25 bytes into 24
      {{0, 24, 0}, {24, 8, 20}},              // begins inside, ends outside
      {{0, 24, 0}, {24, 8, UINT64_MAX - 3}},  // would wrap around
      {{0, 24, 0}, {24, UINT32_MAX, 0}},      // longer than anything
  };
  for (const UnpackMode mode : kModes) {
    const auto unpacker = make_cpu_unpacker(mode);
    for (const auto& fragments : cases) {
      Target target(24, 0);
      CHECK(!unpacker->submit({fragments, 2, bounce.data()}, target.data(), 24).in_bounds);
      CHECK_EQ(target.difference(Bytes(24, kGuard)), std::string());
    }
  }
}

CHECK_MAIN()
