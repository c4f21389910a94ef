// Where chunks lie: slots, chunks, and registrations that cover more than one call can.
#include <sys/mman.h>

#include "rig.h"

using namespace tcpx;

namespace {

// Addresses without memory behind them: nothing may touch what is only posted.
struct Mapping {
  explicit Mapping(size_t size) : bytes(size) {
    data = static_cast<uint8_t*>(
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    CHECK(data != MAP_FAILED);
  }
  ~Mapping() { munmap(data, bytes); }
  uint8_t* data;
  size_t bytes;
};

struct Posted {
  size_t at;  // in the buffer
  size_t bytes;
  size_t region;
};

// Posts everything once over a buffer without memory.
std::vector<Posted> post_all(size_t message, size_t stride, uint64_t slots, uint64_t chunk_bytes) {
  FakeNet net;
  Connections connections(net, 0);
  const auto handle = connections.listen(kPeer, 0, 0);
  (void)handle;
  connections.establish(1.0);
  const Mapping buffer(stride * slots);
  connections.register_buffer(kReceiveBuffer, buffer.data, buffer.bytes, kNetPtrHost);
  TimedLoop driver(net, connections, {});
  const BlockTable blocks[kBuffers] = {{}, blocks_of({message}), {}};
  SlotBase bases[kBuffers] = {};
  bases[kReceiveBuffer] = {buffer.data, stride};
  const Steps steps = Steps().receive(0);
  driver.load(compile(steps.data(), 1, blocks, chunk_bytes, 1), bases);
  driver.reserve(slots);
  std::vector<Posted> posted;
  net.completes = [&](const FakeRequest& r) {
    const auto* region = static_cast<FakeNet::Registration*>(r.mhandle);
    posted.push_back({static_cast<size_t>(r.data - buffer.data), r.bytes,
                      static_cast<size_t>(region - &net.registrations[0])});
    CHECK_LE(region->data, r.data);
    CHECK_LE(r.data + r.bytes, region->data + region->bytes);
    return true;
  };
  BatchPlan plan;
  plan.iterations = slots;
  plan.stall_ns = 2'000'000'000;
  CHECK(driver.run(plan));
  CHECK_CONTRACT(net);
  return posted;
}

}  // namespace

TEST(a_message_above_two_gib_is_covered_by_several_registrations) {
  const size_t message = (size_t{5} << 29) + 12345;  // 2.5 GiB and a bit
  const size_t chunk = 512 << 10;
  const auto posted = post_all(message, (message + 4095) / 4096 * 4096, 2, chunk);
  CHECK_EQ(posted.size(), 2 * ((message + chunk - 1) / chunk));
  size_t at = 0;
  for (size_t i = 0; i < posted.size() / 2; ++i) {
    CHECK_EQ(posted[i].at, at);
    at += posted[i].bytes;
  }
  CHECK_EQ(at, message);
  CHECK_EQ(posted.back().region, 5u);  // the second slot ends beyond 5 GiB
}

// Chunks whose size has no relation to the border: some chunk begins in one region and ends behind.
TEST(a_chunk_that_crosses_a_border_lies_in_the_region_in_which_it_begins) {
  const size_t chunk = kMaxChunkBytes - 12;
  const auto posted = post_all(size_t{3} << 30, size_t{3} << 30, 1, chunk);
  int crossing = 0;
  for (const Posted& p : posted) {
    CHECK_EQ(p.region, p.at >> kRegionShift);
    crossing += p.bytes > 0 && p.at >> kRegionShift != (p.at + p.bytes - 1) >> kRegionShift;
  }
  CHECK_EQ(crossing, 2);
}

TEST(registrations_are_as_large_as_the_buffer_and_no_larger) {
  FakeNet net;
  Connections connections(net, 0);
  connections.listen(kPeer, 0, 0);
  connections.establish(1.0);
  const size_t region = size_t{1} << kRegionShift;
  for (const size_t bytes : {size_t{0}, size_t{1}, region - 1, region, region + 1,
                             region + kMaxChunkBytes + 1, 2 * region}) {
    net.registrations.clear();
    connections.register_buffer(kSendBuffer, nullptr, bytes, kNetPtrHost);
    size_t end = 0;
    for (const auto& r : net.registrations) {
      end = reinterpret_cast<size_t>(r.data) + r.bytes;
      CHECK_LE(r.bytes, region + kMaxChunkBytes);
    }
    CHECK_EQ(end, bytes);
    CHECK_EQ(net.registrations.size(), std::max<size_t>(1, (bytes + region - 1) / region));
  }
}

TEST(no_request_is_larger_than_a_chunk_and_together_they_are_the_message) {
  for (const size_t message : {0, 1, 99, 100, 101, 1000, 1001}) {
    const auto posted = post_all(message, 4096, 3, 100);
    CHECK_EQ(posted.size(), 3 * std::max<size_t>(1, (message + 99) / 100));
    size_t total = 0;
    for (const Posted& p : posted) {
      CHECK_LE(p.bytes, 100u);
      total += p.bytes;
    }
    CHECK_EQ(total, 3 * message);
  }
}

CHECK_MAIN()
