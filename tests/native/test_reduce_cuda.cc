// Reductions and scalings on a GPU against the CPU's reference, bit by bit. On the fake driver the
// kernels' own source runs on the CPU; with TCPX_MPI_REAL_GPU set, on a GPU.
#include <algorithm>
#include <memory>

#include "fake_gpu.h"
#include "net/abi_v7.h"
#include "reduce_scene.h"
#include "unpack/cuda_unpacker.h"

using namespace tcpx;

namespace {

constexpr size_t kLists = 16;

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Memory of a GPU that a test fills and looks at, with room for any alignment in front and behind.
class OnGpu {
 public:
  explicit OnGpu(const std::vector<uint8_t>& bytes, size_t skip = 0)
      : memory_(test_gpu(), bytes.size() + 64), skip_(skip), bytes_(bytes.size()) {
    std::vector<uint8_t> all(memory_.bytes(), 0x5a);
    std::copy(bytes.begin(), bytes.end(), all.begin() + static_cast<long>(skip));
    copy_now(memory_.address(), number(all.data()), all.size());
  }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(memory_.address() + skip_); }
  std::vector<uint8_t> now() const {
    std::vector<uint8_t> all(memory_.bytes());
    copy_now(number(all.data()), memory_.address(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      if (i < skip_ || i >= skip_ + bytes_) CHECK_EQ(all[i], 0x5a);
    }
    return {all.begin() + static_cast<long>(skip_),
            all.begin() + static_cast<long>(skip_ + bytes_)};
  }

 private:
  GpuMemory memory_;
  size_t skip_;
  size_t bytes_;
};

// Finished receives, their fragments in page-locked memory as a plugin lists them.
class Received {
 public:
  Received() : lists_(test_gpu(), kLists * kNetUnpackFragments * sizeof(NetUnpackFragment)) {}

  UnpackSource add(const std::vector<uint8_t>& bytes, size_t longest, size_t unit,
                   std::mt19937& random) {
    std::vector<uint8_t> bounce(3 * bytes.size() + 64 * kNetUnpackFragments / 16);
    auto* list =
        reinterpret_cast<NetUnpackFragment*>(lists_.data()) + count_++ * kNetUnpackFragments;
    uint64_t n = 0, next = unit * (1 + random() % 5);
    for (uint64_t at = 0; at < bytes.size(); ++n) {
      const uint64_t length =
          std::min<uint64_t>(bytes.size() - at, unit * (1 + random() % (longest / unit)));
      if (next + length > bounce.size()) bounce.resize(2 * (next + length));
      list[n] = {static_cast<uint32_t>(next), static_cast<uint32_t>(length), at};
      memcpy(bounce.data() + next, bytes.data() + at, length);
      next += length + unit * (random() % 3);
      at += length;
    }
    CHECK_LE(n, uint64_t{kNetUnpackFragments});
    std::shuffle(list, list + n, random);
    bounces_.push_back(std::make_unique<OnGpu>(bounce));
    return {list, n, bounces_.back()->data()};
  }

 private:
  PinnedMemory lists_;
  std::vector<std::unique_ptr<OnGpu>> bounces_;
  size_t count_ = 0;
};

CudaUnpacker on_gpu(UnpackMode mode) {
  test_gpu();
  return CudaUnpacker(0, mode);
}

void finish(CudaUnpacker& unpacker) {
  unpacker.flush();
  while (unpacker.finished() < unpacker.last_ticket() && unpacker.failure().code == 0) {
  }
  CHECK_EQ(unpacker.failure().code, 0);
}

std::vector<uint8_t> expected_of(const Arithmetic& arithmetic, const std::vector<uint8_t>& a,
                                 const std::vector<uint8_t>& b) {
  std::vector<uint8_t> expected(a.size());
  reduce_reference(arithmetic, a.data(), b.data(), expected.data(), a.size());
  return expected;
}

// A receive of `bytes` in fragments of up to `longest`, multiples of `unit`, by every type and
// operation; the operand apart or replaced, at an address `skip` elements behind an aligned one.
void reduces(UnpackMode mode, size_t elements, size_t longest, size_t unit, size_t skip) {
  std::mt19937 random(7);
  CudaUnpacker unpacker = on_gpu(mode);
  each_arithmetic([&](const Arithmetic& arithmetic) {
    unpacker.prepare(arithmetic);
    const ElementType type = arithmetic.type;
    const size_t bytes = elements * element_bytes(type);
    Received received;
    const auto sent = random_elements(type, bytes, random);
    const auto local = random_elements(type, bytes, random);
    const OnGpu apart(std::vector<uint8_t>(bytes, 1), skip * element_bytes(type));
    const OnGpu operand(local, (15 - skip) % 8 * element_bytes(type) % 48);
    const OnGpu in_place(local, 2 * skip * element_bytes(type) % 48);
    const UnpackSource source = received.add(sent, longest, unit, random);
    const UnpackResult result = unpacker.submit_reduce(source, operand.data(), apart.data(), bytes);
    CHECK(result.in_bounds);
    CHECK_EQ(result.bytes, bytes);
    unpacker.submit_reduce(source, in_place.data(), in_place.data(), bytes);
    finish(unpacker);
    const auto expected = expected_of(arithmetic, sent, local);
    CHECK_EQ(element_difference(type, apart.now(), expected), "");
    CHECK_EQ(element_difference(type, in_place.now(), expected), "");
    CHECK(operand.now() == local);
  });
}

}  // namespace

TEST(fragments_of_any_length_are_reduced_by_every_type_and_operation) {
  reduces(UnpackMode::kKernel, 500, 97, 1, 1);
}

TEST(fragments_of_one_byte_are_reduced_although_each_element_lies_in_several) {
  reduces(UnpackMode::kKernel, 60, 1, 1, 0);
}

TEST(fragments_of_whole_quads_are_reduced) { reduces(UnpackMode::kKernel, 4000, 4096, 16, 0); }

TEST(fragments_that_are_long_are_reduced_at_addresses_of_any_element) {
  for (size_t skip = 0; skip < 4; ++skip) reduces(UnpackMode::kKernel, 3001, 9000, 1, skip);
}

TEST(other_ways_to_unpack_reduce_in_two_passes) {
  reduces(UnpackMode::kCopies, 300, 600, 1, 1);
  reduces(UnpackMode::kHost, 300, 600, 1, 1);
}

TEST(elements_are_scaled_in_place_or_apart) {
  std::mt19937 random(8);
  CudaUnpacker copier = on_gpu(UnpackMode::kCopies);
  each_arithmetic([&](const Arithmetic& arithmetic) {
    copier.prepare(arithmetic);
    const ElementType type = arithmetic.type;
    for (const size_t elements : {0, 1, 2000}) {
      const auto from = random_elements(type, elements * element_bytes(type), random);
      const OnGpu source(from), in_place(from, element_bytes(type));
      const OnGpu apart(std::vector<uint8_t>(from.size(), 1), 3 * element_bytes(type));
      copier.scale(apart.data(), source.data(), from.size());
      copier.scale(in_place.data(), in_place.data(), from.size());
      finish(copier);
      std::vector<uint8_t> expected(from.size());
      scale_reference(arithmetic, from.data(), expected.data(), from.size());
      CHECK_EQ(element_difference(type, apart.now(), expected), "");
      CHECK_EQ(element_difference(type, in_place.now(), expected), "");
    }
  });
}

// One launch has receives that are reduced and such that are not, copies, and empty ones.
TEST(receives_of_all_kinds_share_a_launch_and_its_ticket) {
  std::mt19937 random(9);
  const Arithmetic sum = make_arithmetic(kBfloat16, kSum, 1);
  CudaUnpacker unpacker = on_gpu(UnpackMode::kKernel);
  unpacker.prepare(sum);
  const size_t bytes = 3000;
  for (int round = 0; round < 8; ++round) {
    Received received;
    const auto sent = random_elements(kBfloat16, bytes, random);
    const auto local = random_elements(kBfloat16, bytes, random);
    const OnGpu operand(local), reduced(std::vector<uint8_t>(bytes, 1));
    const OnGpu moved(std::vector<uint8_t>(bytes, 1)), copied(std::vector<uint8_t>(bytes, 1));
    const UnpackSource source = received.add(sent, 700, 1, random);
    if (round & 1) unpacker.submit(source, moved.data(), bytes);
    if (round & 2) unpacker.copy(copied.data(), operand.data(), bytes);
    unpacker.submit_reduce({source.fragments, 0, source.bounce}, operand.data(), moved.data(), 0);
    unpacker.submit_reduce(source, operand.data(), reduced.data(), bytes);
    if (round & 4) unpacker.submit(source, moved.data(), bytes);
    finish(unpacker);
    CHECK_EQ(element_difference(kBfloat16, reduced.now(), expected_of(sum, sent, local)), "");
    if (round & 5) CHECK(moved.now() == sent);
    if (round & 2) CHECK(copied.now() == local);
  }
}

TEST(more_receives_than_a_launch_takes_are_all_reduced) {
  std::mt19937 random(10);
  const Arithmetic sum = make_arithmetic(kInt32, kSum, 1);
  CudaUnpacker unpacker = on_gpu(UnpackMode::kKernel);
  unpacker.reserve(400);
  unpacker.prepare(sum);
  Received received;
  const auto sent = random_elements(kInt32, 256, random);
  const OnGpu total(std::vector<uint8_t>(256 * 300, 0));
  const UnpackSource source = received.add(sent, 64, 1, random);
  for (size_t i = 0; i < 300; ++i) {
    unpacker.submit_reduce(source, total.data() + 256 * i, total.data() + 256 * i, 256);
  }
  finish(unpacker);
  const auto now = total.now();
  for (size_t i = 0; i < 300; ++i) CHECK_EQ(memcmp(&now[256 * i], sent.data(), 256), 0);
}

TEST(fragments_beyond_what_was_posted_are_told_before_the_gpu_has_them) {
  CudaUnpacker unpacker = on_gpu(UnpackMode::kKernel);
  unpacker.prepare(make_arithmetic(kFloat, kSum, 1));
  std::mt19937 random(11);
  Received received;
  const OnGpu place(std::vector<uint8_t>(64, 3));
  const UnpackSource source = received.add(std::vector<uint8_t>(64, 1), 64, 4, random);
  CHECK(!unpacker.submit_reduce(source, place.data(), place.data(), 60).in_bounds);
  unpacker.flush();
  CHECK_EQ(unpacker.last_ticket(), 0u);
  CHECK(place.now() == std::vector<uint8_t>(64, 3));
}

CHECK_MAIN()
