// A plugin over the fake driver that delivers as TCPX does: in fragments, listed in GPU memory.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "fake_gpu.h"
#include "fake_net.h"

namespace tcpx {

constexpr size_t kBounceBytes = 1 << 16;

class ScatteringNet : public FakeNet {
 public:
  explicit ScatteringNet(int gpu = 0) : gpu_(test_gpu(gpu)), bounce_(gpu_, kBounceBytes) {
    for (size_t i = 0; i < kBounceBytes; ++i)
      bounce_.data()[i] = static_cast<uint8_t>(i * 7 + i / 251);
    completes = [this](const FakeRequest& request) {
      if (!request.comm->sends) list(request);
      return true;
    };
  }
  int properties(int, NetProperties* out) override {
    *out = {};
    out->device_type = kNetDeviceUnpack;
    out->device_version = kNetUnpackVersion;
    return 0;
  }
  int accept(void* listen_comm, void** comm, NetDeviceHandle** handle) override {
    const int code = FakeNet::accept(listen_comm, comm, handle);
    auto& queue = queues_[*comm];
    queue = std::make_unique<PinnedMemory>(gpu_, sizeof(NetUnpackQueue));
    const NetUnpackDevice device{reinterpret_cast<NetUnpackQueue*>(queue->data()), bounce_.data(),
                                 0};
    blocks_.push_back(std::make_unique<GpuMemory>(gpu_, sizeof(device)));
    copy_now(blocks_.back()->address(), reinterpret_cast<CudaAddress>(&device), sizeof(device));
    (*handle)->type = kNetDeviceUnpack;
    (*handle)->version = kNetUnpackVersion;
    (*handle)->handle = reinterpret_cast<void*>(blocks_.back()->address());
    return code;
  }
  size_t lost = 0;  // bytes that the fragments of a receive lack at its end
  // What a receive at this address must hold.
  std::map<const uint8_t*, std::vector<uint8_t>> delivered;

 private:
  void list(const FakeRequest& request) {
    auto& queue = *reinterpret_cast<NetUnpackQueue*>(queues_[request.comm]->data());
    const uint64_t slot = request.serial % kNetUnpackSlots;
    uint64_t& count = queue.cnt[slot];
    count = 0;
    auto& bytes = delivered[request.data];
    bytes.clear();
    while (bytes.size() + lost < request.bytes) {
      const auto length =
          static_cast<uint32_t>(std::min<size_t>(997, request.bytes - lost - bytes.size()));
      const uint32_t from = next_ = (next_ + 4099) % (kBounceBytes - 1000);
      queue.mem[slot][count++] = {from, length, bytes.size()};
      bytes.insert(bytes.end(), bounce_.data() + from, bounce_.data() + from + length);
    }
  }

  Gpu& gpu_;
  PinnedMemory bounce_;
  std::map<void*, std::unique_ptr<PinnedMemory>> queues_;
  std::vector<std::unique_ptr<GpuMemory>> blocks_;
  uint32_t next_ = 0;
};

}  // namespace tcpx
