// How buffers are made known to a plugin: by address or as a dma-buf, for each comm or once for
// all.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>

#include "fake_gpu.h"
#include "net/plugin_error.h"
#include "rig.h"

using namespace tcpx;

namespace {

// A plugin that looks at each descriptor while it has it.
class DmaBufNet : public FakeNet {
 public:
  struct Seen {
    uint8_t* data;
    size_t bytes;
    uint64_t offset;
    int fd;
    bool open;
  };
  std::vector<Seen> seen;
  int answer = 0;
  bool global = false;

  int properties(int, NetProperties* out) override {
    *out = {};
    out->reg_is_global = global;
    return 0;
  }
  int reg_mr_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                     void** mhandle) override {
    CHECK_EQ(type, static_cast<int>(kNetPtrCuda));
    seen.push_back({static_cast<uint8_t*>(data), bytes, offset, fd, fcntl(fd, F_GETFD) >= 0});
    return answer != 0 ? answer : reg_mr(comm, data, bytes, type, mhandle);
  }
};

Connections two_channels(DmaBufNet& net, int gpu = -1) {
  if (gpu >= 0) test_gpu(gpu);
  Connections connections(net, 0, gpu);
  for (int channel = 0; channel < 2; ++channel) {
    const auto handle = connections.listen(kPeer, 0, channel);
    connections.add_send(kPeer, 0, channel, handle.data());
  }
  connections.establish(5.0);
  return connections;
}

}  // namespace

TEST(a_dma_buf_is_of_whole_pages_and_closed_when_it_is_registered) {
  DmaBufNet net;
  Connections connections = two_channels(net, 0);
  const GpuMemory memory(test_gpu(), 3 * 4096);
  auto* data = reinterpret_cast<uint8_t*>(memory.address());
  data += 4096 - reinterpret_cast<uintptr_t>(data) % 4096 + 100;
  connections.register_buffer(kReceiveBuffer, data, 5000, {kNetPtrCuda, true});
  CHECK_EQ(net.seen.size(), 4u);  // two comms a way
  for (const auto& each : net.seen) {
    CHECK(each.data == data);
    CHECK_EQ(each.bytes, 5000u);
    CHECK_EQ(each.offset, 100u);
    CHECK(each.open);
    CHECK(fcntl(each.fd, F_GETFD) < 0 && errno == EBADF);
  }
  connections.close();
  CHECK_EQ(net.deregistered, 4);
}

TEST(a_dma_buf_that_is_refused_is_closed_and_the_refusal_is_told) {
  DmaBufNet net;
  net.answer = 2;
  Connections connections = two_channels(net, 0);
  const GpuMemory memory(test_gpu(), 4096);
  std::string said;
  try {
    connections.register_buffer(kSendBuffer, reinterpret_cast<uint8_t*>(memory.address()), 100,
                                {kNetPtrCuda, true});
  } catch (const PluginError& error) {
    said = error.what();
  }
  CHECK(said.find("regMrDmaBuf") != std::string::npos);
  CHECK_EQ(net.seen.size(), 1u);
  CHECK(fcntl(net.seen[0].fd, F_GETFD) < 0);
}

TEST(a_registration_that_is_global_is_made_and_undone_once) {
  for (const bool global : {false, true}) {
    DmaBufNet net;
    net.global = global;
    Connections connections = two_channels(net);
    std::vector<uint8_t> memory(100);
    connections.register_buffer(kSendBuffer, memory.data(), memory.size(), kNetPtrHost);
    CHECK_EQ(net.registrations.size(), global ? 1u : 4u);
    std::set<void*> known;
    for (const auto& comm : connections.comms()) {
      CHECK_EQ(comm->mhandles[kSendBuffer].size(), 1u);
      known.insert(comm->mhandles[kSendBuffer].front());
    }
    CHECK_EQ(known.size(), global ? 1u : 4u);
    connections.close();
    CHECK_EQ(net.deregistered, global ? 1 : 4);
  }
}

CHECK_MAIN()
