// Which kernel puts receives together, and how many of them a launch takes: the fake driver counts.
#include "unpack_scene.h"

using namespace tcpx;

namespace {

constexpr uint32_t kPage = 4096;

uint64_t launches(const char* kernel) {
  return fake_call<uint64_t(const char*)>("fakecuda_calls")(kernel);
}

}  // namespace

TEST(pages_have_a_kernel_of_their_own_also_after_odd_bytes) {
  UnpackScene scene(Bounce::kPinned, 64 * kPage, 64 * kPage);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  const std::vector<NetUnpackFragment> pages = {{kPage, kPage, 0}, {0, kPage, kPage}};
  const std::vector<NetUnpackFragment> odd = {{kPage, kPage, 0}, {1, kPage, kPage}};
  size_t at = 0;
  for (const auto& fragments : {pages, odd, pages}) {
    const uint64_t before = launches("unpack_pages"), others = launches("unpack_fragments");
    scene.receive(unpacker, at, 2 * kPage, fragments);
    scene.finish(unpacker);
    at += 2 * kPage;
    CHECK_EQ(launches("unpack_pages") - before, uint64_t{fragments[1].src_off == 0});
    CHECK_EQ(launches("unpack_fragments") - others, uint64_t{fragments[1].src_off != 0});
  }
  CHECK_EQ(scene.difference(), std::string());
}

TEST(a_launch_takes_as_many_receives_as_its_arguments_have_room_for) {
  constexpr size_t kQueues = 8;
  for (const size_t receives : {size_t{1}, size_t{kUnpackItems}, size_t{kUnpackItems} + 1}) {
    UnpackScene scene(Bounce::kPinned, kPage, kQueues * 16 * 100, kQueues);
    CudaUnpacker unpacker(0, UnpackMode::kKernel);
    const uint64_t before = launches("unpack_fragments");
    for (size_t i = 0; i < receives; ++i) {
      scene.receive(unpacker, 100 * i, 99, {{static_cast<uint32_t>(i), 99, 0}}, i % kQueues);
    }
    scene.finish(unpacker);
    CHECK_EQ(launches("unpack_fragments") - before, uint64_t{receives > kUnpackItems} + 1);
    CHECK_EQ(scene.difference(), std::string());
  }
}

CHECK_MAIN()
