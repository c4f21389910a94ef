// One bounce buffer for all receiving connections of a process on a GPU, as NCCL's kernels need it.
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fake_gpu.h"
#include "softtcpx/transfer/bounce.h"

using namespace softtcpx;

namespace {

constexpr int64_t kUsualChunk = 524288;

Settings settings_of(int64_t chunk_bytes = kUsualChunk) {
  Settings settings;
  settings.chunk_bytes = chunk_bytes;
  return settings;
}

std::unique_ptr<BouncePool> opened(const Settings& settings, const softtcpx::Gpu& gpu = {}) {
  auto pool = std::make_unique<BouncePool>(settings);
  pool->open(gpu);
  return pool;
}

// So many pools, until there is no room for one more; what is said then.
std::string fill_range(std::vector<std::unique_ptr<BouncePool>>& pools, const Settings& settings,
                       const softtcpx::Gpu& gpu, size_t most) {
  try {
    while (pools.size() < most) pools.push_back(opened(settings, gpu));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The offset of a page that the pool's next receive was given.
uint32_t page_of(BouncePool& pool, uint64_t sequence = 0) {
  if (!pool.filled()) pool.fill();
  CHECK(pool.admit(sequence, kBouncePageBytes));
  pool.begin(sequence, kBouncePageBytes);
  Fragment fragment{};
  CHECK_EQ(pool.cut(sequence, 0, 0, kBouncePageBytes, &fragment), BouncePool::Cut::kGood);
  return fragment.src_off;
}

softtcpx::Gpu gpu_of(int ordinal) {
  test_gpu(ordinal);
  return softtcpx::current_gpu();
}

void check_one_buffer(const softtcpx::Gpu& gpu) {
  const Settings settings = settings_of();
  const auto first = opened(settings, gpu), second = opened(settings, gpu);
  CHECK_EQ(first->device()->bounce_buf, second->device()->bounce_buf);
  CHECK(first->device()->meta != second->device()->meta);
  const uint32_t here = page_of(*first), there = page_of(*second);
  std::memset(first->page_bytes(here), 1, kBouncePageBytes);
  std::memset(second->page_bytes(there), 2, kBouncePageBytes);
  // A kernel that knows the first one's base alone.
  const auto* base = static_cast<const uint8_t*>(first->device()->bounce_buf);
  CHECK_EQ(base[here], 1);
  CHECK_EQ(base[there], 2);
}

}  // namespace

TEST(receiving_connections_of_host_memory_name_one_buffer) { check_one_buffer({}); }

TEST(receiving_connections_of_a_gpu_name_one_buffer_and_each_gpu_has_its_own) {
  const softtcpx::Gpu gpu = gpu_of(0);
  check_one_buffer(gpu);
  const Settings settings = settings_of();
  const auto first = opened(settings, gpu), host = opened(settings);
  CHECK(first->device()->bounce_buf != host->device()->bounce_buf);
  const auto other = opened(settings, gpu_of(1));
  CHECK(first->device()->bounce_buf != other->device()->bounce_buf);
}

// 126: of a mesh of 64 ranks by 2 channels.
TEST(connections_of_a_mesh_fit_and_one_too_many_is_an_error_by_name) {
  for (const softtcpx::Gpu& gpu : {softtcpx::Gpu{}, gpu_of(0)}) {
    std::vector<std::unique_ptr<BouncePool>> pools;
    const Settings usual = settings_of();
    CHECK_EQ(fill_range(pools, usual, gpu, 126), "");
    for (const auto& pool : pools)
      CHECK_EQ(pool->device()->bounce_buf, pools[0]->device()->bounce_buf);
    const std::string refusal = fill_range(pools, usual, gpu, 1000);
    CHECK(refusal.find("for " + std::to_string(pools.size()) + " receiving connections") !=
          std::string::npos);
    CHECK(refusal.find("no 9 MiB left") != std::string::npos);
    // The rest go on, and what closes makes room.
    page_of(*pools.back());
    pools.erase(pools.begin() + 7);
    pools.push_back(opened(usual, gpu));
    CHECK(fill_range(pools, usual, gpu, 1000) != "");
  }
}

TEST(large_chunks_leave_room_for_a_mesh_in_host_memory) {
  std::vector<std::unique_ptr<BouncePool>> pools;
  CHECK_EQ(fill_range(pools, settings_of(int64_t{64} << 20), {}, 126), "");
}

TEST(a_stretch_that_is_leased_again_holds_nothing_of_its_last_connection) {
  const Settings settings = settings_of();
  const auto stays = opened(settings);
  auto pool = opened(settings);
  const uint32_t page = page_of(*pool);
  std::memset(pool->page_bytes(page), 0xff, kBouncePageBytes);
  pool.reset();
  pool = opened(settings);
  CHECK_EQ(page_of(*pool), page);
  CHECK_EQ(*pool->page_bytes(page), 0);
}

TEST(the_trap_of_device_memory_keeps_one_buffer) {
  const softtcpx::Gpu gpu = gpu_of(0);
  Settings settings = settings_of();
  settings.traps.device_memory = 1;
  const auto first = opened(settings, gpu), second = opened(settings, gpu);
  std::vector<NetUnpackDevice> devices(2);
  const auto read = fake_call<int(void*, unsigned long long, size_t)>("cuMemcpyDtoH_v2");
  int k = 0;
  for (const BouncePool* pool : {first.get(), second.get()})
    CHECK_EQ(read(&devices[k++], reinterpret_cast<unsigned long long>(pool->device()),
                  sizeof(NetUnpackDevice)),
             0);
  CHECK_EQ(devices[0].bounce_buf, devices[1].bounce_buf);
  CHECK(devices[0].bounce_buf != first->page_bytes(0));
}

TEST(the_trap_of_shared_pages_has_one_pool_of_which_nothing_is_set_aside) {
  Settings settings = settings_of();
  settings.traps.shared_pages = 3;
  auto first = opened(settings), second = opened(settings);
  CHECK_EQ(first->device()->bounce_buf, second->device()->bounce_buf);
  std::vector<uint32_t> pages = {page_of(*first, 0), page_of(*first, 1), page_of(*second, 0)};
  CHECK(pages[0] != pages[1] && pages[1] != pages[2] && pages[0] != pages[2]);
  CHECK(second->admit(1, kBouncePageBytes));
  second->begin(1, kBouncePageBytes);
  Fragment fragment{};
  CHECK_EQ(second->cut(1, 0, 0, kBouncePageBytes, &fragment), BouncePool::Cut::kNoPage);
  first->take_back(1);  // of its first receive
  CHECK_EQ(second->cut(1, 0, 0, kBouncePageBytes, &fragment), BouncePool::Cut::kGood);
  CHECK_EQ(fragment.src_off, pages[0]);
  first.reset();  // with a page that nobody consumed
  CHECK_EQ(page_of(*second, 2), pages[1]);
}

namespace {

unsigned long long g_apart = 0;

int seen_elsewhere(unsigned long long* address, void* memory, unsigned) {
  *address = reinterpret_cast<unsigned long long>(memory) + g_apart;
  g_apart += 4096;
  return 0;
}

}  // namespace

TEST(a_driver_that_maps_pages_at_several_distances_is_refused) {
  softtcpx::Gpu gpu = gpu_of(0);
  softtcpx::CudaDriver odd = *gpu.driver;
  odd.mem_host_get_device_pointer = seen_elsewhere;
  gpu.driver = &odd;
  const Settings settings = settings_of();
  const auto first = opened(settings, gpu);
  std::vector<std::unique_ptr<BouncePool>> second;
  CHECK(fill_range(second, settings, gpu, 1).find("several distances") != std::string::npos);
  CHECK(second.empty());
}

CHECK_MAIN()
