#include "engine/comm.h"

#include <algorithm>
#include <mutex>

#include "engine/clock.h"
#include "net/logger.h"
#include "net/plugin_call.h"
#include "net/plugin_error.h"

namespace tcpx {
namespace {

// A plugin may set up what belongs to a GPU, or to all comms, with the first of them: sessions of
// several threads come one after the other.
std::mutex g_setup;

}  // namespace

void check_call(int code, const char* call, const std::string& what, int64_t began_ns) {
  if (code == kNetSuccess) return;
  throw PluginError(call, code, what + plugin_log::quote_call(began_ns));
}

Staging::Staging(size_t bytes, int gpu) {
  if (gpu < 0) {
    host_ = std::make_unique<HostBuffer>(bytes);
    data_ = host_->data();
    bytes_ = host_->capacity();
    return;
  }
  // What the driver gives begins on borders of 512 bytes.
  constexpr uint64_t kPage = 4096;
  const auto pages = [](uint64_t at) { return (at + kPage - 1) / kPage * kPage; };
  bytes_ = pages(bytes);
  on_gpu_ = std::make_unique<GpuMemory>(use_gpu(gpu), bytes_ + kPage);
  data_ = reinterpret_cast<uint8_t*>(pages(on_gpu_->address()));
}

std::string describe(const Comm& comm) {
  const std::string channel = ", channel " + std::to_string(comm.channel);
  const std::string way = comm.direction == Direction::kSend ? "to " : "from ";
  if (comm.peer == kUnranked) return way + "the peer" + channel;
  return way + "rank " + std::to_string(comm.peer) + ", lane " + std::to_string(comm.lane) +
         channel;
}

std::string words_of(const void* comm) { return describe(*static_cast<const Comm*>(comm)); }

void open_listener(Net& net, int device, Comm& comm) {
  const std::lock_guard<std::mutex> alone(g_setup);
  const plugin_call::About about(&comm, words_of);
  const int64_t start = comm.began_ns = now_ns();
  check_call(net.listen(device, comm.handle.data(), &comm.listen_comm), "listen", describe(comm));
  comm.listen_ns = now_ns() - start;
}

int open_comm(Net& net, int device, Comm& comm) {
  const plugin_call::About about(&comm, words_of);
  // An accept that blocks may wait for a connect of another thread. A plugin that unpacks keeps
  // something a GPU, and does not block.
  std::unique_lock<std::mutex> alone(g_setup, std::defer_lock);
  if (comm.direction == Direction::kSend || comm.unpacks) alone.lock();
  NetDeviceHandle* handle = nullptr;
  if (comm.direction == Direction::kSend) {
    return net.connect(device, comm.handle.data(), &comm.comm, &handle);
  }
  // A plugin that unpacks on the device writes into our block, also for host memory; any other
  // takes a non-NULL pointee as a request for device offload.
  if (comm.unpacks) {
    handle = reinterpret_cast<NetDeviceHandle*>(comm.device_block.data());
    handle->type = kNetDeviceUnpack;
    handle->version = kNetUnpackVersion;
  }
  const int code = net.accept(comm.listen_comm, &comm.comm, &handle);
  if (comm.comm != nullptr) comm.device_handle = handle;
  return code;
}

std::vector<void*> register_regions(Net& net, const Comm& comm, uint8_t* data, size_t bytes,
                                    Registration how) {
  const plugin_call::About about(&comm, words_of);
  const size_t region = size_t{1} << kRegionShift;
  std::vector<void*> mhandles;
  for (size_t at = 0; at < std::max<size_t>(bytes, 1); at += region) {
    void* mhandle = nullptr;
    const size_t covered = std::min(bytes - at, region + kMaxChunkBytes);
    const int code = [&] {
      const std::lock_guard<std::mutex> alone(g_setup);
      if (!how.dma_buf) return net.reg_mr(comm.comm, data + at, covered, how.type, &mhandle);
      const DmaBuf exported(data + at, covered);
      return net.reg_mr_dma_buf(comm.comm, data + at, covered, how.type, exported.offset(),
                                exported.fd(), &mhandle);
    }();
    if (code != kNetSuccess) {
      for (void* done : mhandles) net.dereg_mr(comm.comm, done);
      check_call(code, how.dma_buf ? "regMrDmaBuf" : "regMr",
                 describe(comm) + ", " + std::to_string(covered) + " bytes");
    }
    mhandles.push_back(mhandle);
  }
  return mhandles;
}

}  // namespace tcpx
