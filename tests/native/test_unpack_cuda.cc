// Unpacking on a GPU against the CPU's reference: each byte in its place, none beside. On the fake
// driver the kernel's own source runs on the CPU; with TCPX_MPI_REAL_GPU set, on a GPU.
#include <numeric>

#include "unpack_scene.h"

using namespace tcpx;

namespace {

constexpr uint32_t kPage = 4096;
constexpr UnpackMode kModes[] = {UnpackMode::kKernel, UnpackMode::kStaying, UnpackMode::kCopies,
                                 UnpackMode::kHost};

std::vector<uint32_t> lengths() {
  std::vector<uint32_t> all(64);
  std::iota(all.begin(), all.end(), 1);
  all.insert(all.end(), {127, 128, 129, 511, 512, 513, 1460, 4095, 4096, 4097, 9000});
  return all;
}

// Fragments of random lengths from random places, one behind the other at the destination and
// listed in any order; with gaps, some bytes of it are nobody's.
std::vector<NetUnpackFragment> random_fragments(std::mt19937& random, size_t count,
                                                uint32_t longest, size_t bounce_bytes, bool gaps,
                                                uint64_t* posted) {
  std::vector<NetUnpackFragment> fragments;
  uint64_t at = gaps ? random() % 20 : 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t length = 1 + random() % longest;
    fragments.push_back({static_cast<uint32_t>(random() % (bounce_bytes - length)), length, at});
    at += length + (gaps ? random() % 3 : 0);
  }
  std::shuffle(fragments.begin(), fragments.end(), random);
  *posted = at;
  return fragments;
}

}  // namespace

TEST(every_alignment_of_source_and_destination_at_every_length_is_exact) {
  const auto all = lengths();
  const size_t most = *std::max_element(all.begin(), all.end());
  const size_t room = std::accumulate(all.begin(), all.end(), size_t{0}) + 48 * all.size();
  UnpackScene scene(Bounce::kOnGpu, 4 * kPage, 256 * room);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  for (uint32_t from = 0; from < 16; ++from) {
    for (uint32_t to = 0; to < 16; ++to) {
      const size_t at = (from * 16 + to) * room;
      std::vector<NetUnpackFragment> fragments;
      uint64_t dst_off = 16;
      for (const uint32_t length : all) {
        while ((scene.destination() + at + dst_off) % 16 != to) ++dst_off;
        fragments.push_back({kPage + from, length, dst_off});
        dst_off += length + 16;  // guards between
      }
      CHECK_LE(size_t{kPage + 16} + most, size_t{4 * kPage});
      scene.receive(unpacker, at, room, fragments);
      // A slot of the queue is free again when it was read.
      if (to == 15) scene.finish(unpacker);
    }
  }
  CHECK_EQ(scene.difference(), std::string());
}

TEST(fragments_at_multiples_of_16_bytes_are_exact_at_any_number_of_them) {
  std::mt19937 random(6);
  constexpr size_t kBounceBytes = 64 * kPage;
  constexpr size_t kRoom = 40 << 20;
  UnpackScene scene(Bounce::kOnGpu, kBounceBytes, kRoom);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  size_t at = 0;
  for (const size_t most : {kPage / 16, kPage / 16 + 300}) {  // none larger than a page, and some
    for (const size_t count : {1, 2, 3, 5, 8, 9, 16, 40, 105, 128, 700, 2000}) {
      std::vector<NetUnpackFragment> fragments;
      uint64_t dst_off = 0;
      for (size_t i = 0; i < count; ++i) {
        const auto quads = random() % 4 == 0 ? most : 1 + random() % most;
        const auto length = static_cast<uint32_t>(16 * quads);
        fragments.push_back(
            {static_cast<uint32_t>(random() % (kBounceBytes - length)) & ~15u, length, dst_off});
        dst_off += length + 16;
      }
      std::shuffle(fragments.begin(), fragments.end(), random);
      scene.receive(unpacker, at, dst_off, fragments);
      scene.finish(unpacker);
      at += dst_off;
    }
  }
  CHECK_LE(at, kRoom);
  CHECK_EQ(scene.difference(), std::string());
}

// One odd source, destination, length or receive: it is in one launch with all the others.
TEST(one_odd_byte_among_pages_is_exact) {
  const NetUnpackFragment odd[] = {{kPage + 1, kPage, 8 * kPage},
                                   {kPage, kPage, 8 * kPage + 1},
                                   {kPage, kPage - 1, 8 * kPage},
                                   {kPage, kPage, 8 * kPage}};
  for (const NetUnpackFragment& one : odd) {
    UnpackScene scene(Bounce::kPinned, 64 * kPage, 48 * kPage);
    CudaUnpacker unpacker(0, UnpackMode::kKernel);
    std::vector<NetUnpackFragment> pages;
    for (uint32_t i = 0; i < 8; ++i) pages.push_back({(7 - i) * kPage, kPage, i * kPage});
    scene.receive(unpacker, 0, 8 * kPage, pages);
    pages.push_back(one);
    const bool receive = one.src_off == kPage && one.len == kPage && one.dst_off == 8 * kPage;
    scene.receive(unpacker, 16 * kPage + receive, 10 * kPage, pages);
    pages.pop_back();
    scene.receive(unpacker, 32 * kPage, 8 * kPage, pages);
    scene.finish(unpacker);
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(random_receives_become_what_the_cpu_makes_of_them_in_every_mode) {
  std::mt19937 random(3);
  for (const Bounce where : {Bounce::kOnGpu, Bounce::kPinned}) {
    for (const UnpackMode mode : kModes) {
      constexpr size_t kBounceBytes = 64 * kPage;
      constexpr size_t kRoom = 160 << 10;
      UnpackScene scene(where, kBounceBytes, 16 * kRoom, 3);
      CudaUnpacker unpacker(0, mode);
      for (int round = 0; round < 3; ++round) {
        for (size_t request = 0; request < 16; ++request) {
          uint64_t posted = 0;
          const size_t count = random() % 60;
          const auto fragments = random_fragments(random, count, request % 3 == 0 ? 2500 : 40,
                                                  kBounceBytes, request % 2 == 0, &posted);
          CHECK_LE(posted + 16, uint64_t{kRoom});
          const size_t at = request * kRoom + random() % 16;
          scene.receive(unpacker, at, posted, fragments, random() % 3);
          if (random() % 4 == 0) unpacker.flush();
        }
        scene.finish(unpacker);
        CHECK_EQ(scene.difference(), std::string());
        scene.refill();
      }
    }
  }
}

TEST(no_fragments_one_byte_and_the_most_fragments_are_all_right) {
  for (const UnpackMode mode : kModes) {
    UnpackScene scene(Bounce::kPinned, 64 * kPage, 1 << 20);
    CudaUnpacker unpacker(0, mode);
    scene.receive(unpacker, 0, 100, {});
    scene.receive(unpacker, 200, 0, {});
    scene.receive(unpacker, 301, 1, {{77, 1, 0}});
    std::vector<NetUnpackFragment> many;
    for (uint32_t i = 0; i < kNetUnpackFragments - 1; ++i) many.push_back({i * 61, 59, 59ull * i});
    std::reverse(many.begin(), many.end());
    scene.receive(unpacker, 4099, 59 * many.size(), many);
    scene.receive(unpacker, 500, 100, {});  // an empty one between and behind others
    scene.receive(unpacker, 601, 2, {{9, 1, 1}, {8, 1, 0}});
    scene.finish(unpacker);
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(nothing_but_empty_receives_finish_too) {
  for (const UnpackMode mode : kModes) {
    UnpackScene scene(Bounce::kPinned, kPage, kPage);
    CudaUnpacker unpacker(0, mode);
    for (int i = 0; i < 5; ++i) scene.receive(unpacker, 0, 0, {});
    scene.finish(unpacker);
    CHECK_EQ(unpacker.finished(), uint64_t{5});
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(one_flush_takes_more_receives_than_one_launch_can) {
  constexpr size_t kQueues = 20;
  constexpr size_t kRoom = 3000;
  UnpackScene scene(Bounce::kPinned, 64 * kPage, kQueues * 16 * kRoom, kQueues);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  unpacker.reserve(kQueues * 16);
  std::mt19937 random(4);
  for (int round = 0; round < 2; ++round) {
    for (size_t request = 0; request < kQueues * 16; ++request) {
      uint64_t posted = 0;
      const auto fragments =
          random_fragments(random, 1 + random() % 9, 300, 64 * kPage, true, &posted);
      scene.receive(unpacker, request * kRoom + random() % 16, posted, fragments,
                    request % kQueues);
    }
    scene.finish(unpacker);
    CHECK_EQ(unpacker.finished(), (round + 1) * kQueues * 16);
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(a_slot_that_is_used_again_gives_its_new_fragments_and_no_old_ones) {
  for (const UnpackMode mode : kModes) {
    UnpackScene scene(Bounce::kPinned, 16 * kPage, 64 * kPage);
    CudaUnpacker unpacker(0, mode);
    // Slots of many fragments come back with few, and the other way round.
    for (uint64_t request = 0; request < 64; ++request) {
      std::vector<NetUnpackFragment> fragments;
      const uint32_t count = request / 16 % 2 == request % 2 ? 40 : 3;
      for (uint32_t i = 0; i < count; ++i) {
        fragments.push_back(
            {static_cast<uint32_t>((request * 7 + i * 97) % (12 * kPage)), 90, 100ull * i});
      }
      scene.receive(unpacker, request * kPage, kPage, fragments);
      if (request % 16 == 15) {
        scene.finish(unpacker);
        CHECK_EQ(scene.difference(), std::string());
        scene.refill();
      }
    }
  }
}

TEST(a_fragment_beyond_the_posted_bytes_writes_nothing) {
  for (const UnpackMode mode : kModes) {
    UnpackScene scene(Bounce::kPinned, kPage, 1 << 16);
    CudaUnpacker unpacker(0, mode);
    const std::vector<NetUnpackFragment> cases[] = {
        {{0, 16, 0}, {16, 16, 9}}, {{0, 16, 0}, {16, 16, UINT64_MAX - 3}}, {{0, UINT32_MAX, 0}}};
    for (const auto& fragments : cases) {
      CHECK(!scene.receive(unpacker, 64, 24, fragments).in_bounds);
    }
    scene.finish(unpacker);
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(mode_none_moves_nothing_and_is_done_at_once) {
  UnpackScene scene(Bounce::kPinned, kPage, kPage);
  CudaUnpacker unpacker(0, UnpackMode::kNone);
  const auto before = scene.expected();
  CHECK_EQ(scene.receive(unpacker, 0, 100, {{0, 100, 0}}).bytes, uint64_t{100});
  scene.finish(unpacker);
  scene.expected() = before;
  CHECK_EQ(scene.difference(), std::string());
}

TEST(copies_within_the_gpu_have_tickets_in_one_order_with_receives) {
  UnpackScene scene(Bounce::kOnGpu, 4 * kPage, 8 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kCopies);
  auto* destination = reinterpret_cast<uint8_t*>(scene.destination());
  scene.receive(unpacker, 0, 1000, {{11, 1000, 0}});
  scene.finish(unpacker);
  unpacker.copy(destination + 5001, destination + 3, 700);
  memcpy(&scene.expected()[5001], &scene.expected()[3], 700);
  scene.receive(unpacker, 8000, 50, {{400, 50, 0}});
  CHECK_EQ(unpacker.last_ticket(), uint64_t{3});
  scene.finish(unpacker);
  CHECK_EQ(scene.difference(), std::string());
}

TEST(a_copy_in_one_launch_with_receives_is_none_of_an_older_launch) {
  UnpackScene scene(Bounce::kOnGpu, 4 * kPage, 8 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  auto* destination = reinterpret_cast<uint8_t*>(scene.destination());
  scene.receive(unpacker, 3000, 10, {{70, 10, 0}});
  scene.receive(unpacker, 0, 1000, {{11, 1000, 0}});  // the second of its launch, as the copy is
  scene.finish(unpacker);
  scene.receive(unpacker, 0, 1000, {{2000, 1000, 0}});  // in its place: it would show again
  scene.finish(unpacker);
  scene.receive(unpacker, 8000, 50, {{400, 50, 0}});
  unpacker.copy(destination + 5001, destination + 3, 700);
  memcpy(&scene.expected()[5001], &scene.expected()[3], 700);
  scene.finish(unpacker);
  CHECK_EQ(scene.difference(), std::string());
}

TEST(a_row_of_launches_is_measured_as_one) {
  UnpackScene scene(Bounce::kPinned, 4 * kPage, 8 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  unpacker.measure(2, 3);
  for (uint64_t i = 0; i < 7; ++i) {  // the seventh is beyond what was asked for
    scene.receive(unpacker, 1000 * i, 100 + i, {{11, static_cast<uint32_t>(100 + i), 0}});
    unpacker.flush();
  }
  scene.finish(unpacker);
  const auto measured = unpacker.measured();
  CHECK_EQ(measured.size(), size_t{2});
  CHECK_EQ(measured[0].requests, uint64_t{3});
  CHECK_EQ(measured[0].bytes, uint64_t{303});
  CHECK_EQ(measured[1].bytes, uint64_t{312});
  for (const auto& row : measured) CHECK_LT(0.0, row.microseconds);
  unpacker.measure(1, 2);  // a row that is not whole has no time
  scene.receive(unpacker, 7000, 1, {{1, 1, 0}});
  scene.finish(unpacker);
  CHECK_EQ(unpacker.measured().size(), size_t{0});
  CHECK_EQ(scene.difference(), std::string());
}

TEST(pages_of_a_bounce_buffer_that_begins_anywhere_are_put_together) {
  UnpackScene scene(Bounce::kPinned, 4 * kPage, 4 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  for (const size_t shift : {0, 1, 8, 16}) {
    scene.shift_bounce(shift);
    scene.receive(unpacker, 0, 2 * kPage, {{kPage, kPage, 0}, {0, kPage, kPage}});
    scene.finish(unpacker);
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(what_goes_through_the_host_may_be_larger_than_anything_before) {
  constexpr uint32_t kBytes = (2 << 20) + 4 * kPage;
  UnpackScene scene(Bounce::kPinned, kBytes, kBytes);
  CudaUnpacker unpacker(0, UnpackMode::kHost);
  scene.receive(unpacker, 0, kBytes, {{0, kBytes, 0}});
  scene.finish(unpacker);
  CHECK_EQ(scene.difference(), std::string());
}

TEST(what_is_measured_is_in_microseconds) {
  constexpr uint32_t kBytes = 512 << 10;
  UnpackScene scene(Bounce::kPinned, kBytes, kBytes);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  unpacker.measure(1);
  scene.receive(unpacker, 0, kBytes, {{0, kBytes, 0}});
  scene.finish(unpacker);
  const auto measured = unpacker.measured();
  CHECK_EQ(measured.size(), size_t{1});
  CHECK_LT(1.0, measured[0].microseconds);  // no bus carries 500 GB/s, nor does the fake GPU
  CHECK_LT(measured[0].microseconds, 60e6);
}

TEST(each_measured_launch_has_its_receives_bytes_and_time) {
  UnpackScene scene(Bounce::kPinned, 4 * kPage, 8 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  unpacker.measure(2);
  scene.receive(unpacker, 0, 1000, {{11, 1000, 0}});
  scene.receive(unpacker, 2000, 10, {{0, 10, 0}});
  unpacker.flush();
  scene.receive(unpacker, 3000, 500, {{1, 500, 0}});
  unpacker.flush();
  scene.receive(unpacker, 4000, 1, {{1, 1, 0}});  // beyond what was asked for
  scene.finish(unpacker);
  const auto measured = unpacker.measured();
  CHECK_EQ(measured.size(), size_t{2});
  CHECK_EQ(measured[0].requests, uint64_t{2});
  CHECK_EQ(measured[0].bytes, uint64_t{1010});
  CHECK_EQ(measured[1].bytes, uint64_t{500});
  for (const auto& launch : measured) CHECK_LT(0.0, launch.microseconds);
  CHECK_EQ(scene.difference(), std::string());
}

namespace {

uint64_t launches_of(const char* kernel) {
  return fake_call<uint64_t(const char*)>("fakecuda_calls")(kernel);
}

}  // namespace

TEST(small_receives_need_no_launch_each_while_a_kernel_stays) {
  constexpr size_t kRoom = 80 << 10;
  UnpackScene scene(Bounce::kPinned, 64 * kPage, 100 * kRoom);
  CudaUnpacker unpacker(0, UnpackMode::kStaying);
  std::mt19937 random(9);
  for (size_t i = 0; i < 100; ++i) {  // more than letters have places
    std::vector<NetUnpackFragment> pages;
    const uint32_t count = 1 + random() % 16;
    for (uint32_t k = 0; k < count; ++k) pages.push_back({(63 - k) * kPage, kPage - k, k * kPage});
    scene.receive(unpacker, i * kRoom + random() % 16, count * kPage, pages);
    scene.finish(unpacker);
  }
  CHECK_EQ(scene.difference(), std::string());
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) return;     // which counts no launches
  CHECK_LT(launches_of("stay_and_copy"), uint64_t{100});  // it may leave where cores are busy
  CHECK_EQ(launches_of("unpack_pages") + launches_of("unpack_fragments"), uint64_t{0});
}

TEST(what_is_large_or_many_at_a_time_is_launched_and_comes_in_order) {
  UnpackScene scene(Bounce::kPinned, 64 * kPage, 200 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kStaying);
  std::vector<NetUnpackFragment> large;
  for (uint32_t k = 0; k < 40; ++k) large.push_back({k * kPage, kPage, k * kPage});
  for (size_t round = 0; round < 3; ++round) {
    scene.receive(unpacker, 0, 5, {{1, 5, 0}});
    unpacker.flush();
    scene.receive(unpacker, 8 * kPage, 40 * kPage, large);
    unpacker.flush();
    for (size_t i = 0; i < 6; ++i) scene.receive(unpacker, (60 + i) * kPage, 9, {{77, 9, 0}});
    unpacker.flush();
    scene.receive(unpacker, 80 * kPage, 5, {{3, 5, 0}});
    scene.finish(unpacker);
    CHECK_EQ(scene.difference(), std::string());
    scene.refill();
  }
}

TEST(whoever_waits_for_the_gpu_waits_for_the_kernel_that_stays_and_the_next_receive_has_another) {
  UnpackScene scene(Bounce::kPinned, 4 * kPage, 16 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kStaying);
  for (size_t i = 0; i < 3; ++i) {
    scene.receive(unpacker, i * kPage, 5, {{1, 5, 0}});
    scene.finish(unpacker);
    CHECK_EQ(driver_call<int()>("cuCtxSynchronize")(), 0);
  }
  CHECK_EQ(scene.difference(), std::string());
  if (getenv("TCPX_MPI_REAL_GPU") == nullptr) {
    CHECK_EQ(launches_of("stay_and_copy"), uint64_t{3});
  }
}

TEST(a_line_of_an_old_letter_is_none_of_a_new_one) {
  std::vector<uint64_t> memory(Letters::kBytes / 8);
  auto* bytes = reinterpret_cast<uint8_t*>(memory.data());
  Letters letters(bytes, 0, 0, 1);
  const auto line = [&](uint64_t letter, unsigned number) {
    return &memory[(4096 + letter % kLetters * kLetterBytes + number * 16) / 8];
  };
  for (uint64_t letter = 0; letter <= kLetters * kMarks; ++letter) {
    // Many lines once, which no letter of the same place has after that.
    for (unsigned i = 0; i < (letter == 0 ? kMostCopies : 1); ++i) {
      letters.add(1000 + i, 2000 + i, 7);
    }
    CHECK(letters.has_room(1));
    letters.send(letter);
    memory[0] = letter + 1;  // done, says the GPU
  }
  const uint64_t last = kLetters * kMarks;
  CHECK_EQ(mark_of(last), mark_of(0));
  CHECK(is_of(line(last, 0)[0], last) && is_of(line(last, 1)[1], last));
  CHECK_EQ(place_in(line(last, 0)[0]), uint64_t{1});
  CHECK_EQ(place_in(line(last, 1)[1]), uint64_t{2000});
  CHECK_EQ(bytes_in(line(last, 1)[0], line(last, 1)[1]), 7u);
  for (unsigned i = 2; i < kLetterLines; ++i) CHECK(!is_of(line(last, i)[0], last));
}

CHECK_MAIN()
