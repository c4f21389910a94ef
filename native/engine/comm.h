// A comm of a rank: one direction of one channel between it and a peer, and the calls that make it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/gpu.h"
#include "engine/program.h"
#include "memory/buffer.h"
#include "net/net.h"

namespace tcpx {

// A registration covers kRegionBytes, plus the length of a chunk that begins in it. So chunk
// offsets need no relation to region borders, and a buffer of any size fits calls with int sizes.
constexpr int kRegionShift = 30;
constexpr size_t kMaxChunkBytes = size_t{2} << 20;

enum class Direction { kSend, kReceive };

constexpr int kUnranked = -1;  // the one peer of a session, which has no rank

// Memory of the engine's own, in whole pages.
class Staging {
 public:
  Staging(size_t bytes, int gpu);  // of the host: -1
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<HostBuffer> host_;
  std::unique_ptr<GpuMemory> on_gpu_;
  uint8_t* data_;
  size_t bytes_;
};

struct Comm {
  Direction direction;
  int peer;
  int lane;
  int channel;
  void* comm = nullptr;         // NULL until established
  void* listen_comm = nullptr;  // receive side, until all are established
  // The plugin keeps its state in the handle while it connects: this copy is its own and never
  // moves.
  std::array<uint8_t, kNetHandleBytes> handle{};
  alignas(16) std::array<uint8_t, 64> device_block{};  // where accept writes a device handle
  NetDeviceHandle* device_handle = nullptr;
  std::vector<void*> mhandles[kBuffers];  // by region
  bool borrows_mhandles = false;          // another comm of the plugin's device has them
  // Where receives land that are reduced on their way to where they belong; see Connections::stage.
  std::unique_ptr<Staging> staging;
  std::vector<void*> staging_mhandles;
  uint64_t receives_done = 0;  // since the comm came up: the k-th has slot k % 16 of its queue
  bool reports_sizes = false;  // the plugin wrote the size of a receive: from then on 0 is a size

  // What the device handle points to, where that is memory of a GPU.
  std::optional<NetUnpackDevice> fetched_queue;

  // Where the plugin lists the fragments of receives; NULL: it delivers in place.
  const NetUnpackDevice* unpack_queue() const {
    if (fetched_queue) return &*fetched_queue;
    return device_handle != nullptr && device_handle->type == kNetDeviceUnpack
               ? static_cast<const NetUnpackDevice*>(device_handle->handle)
               : nullptr;
  }
  int64_t began_ns = 0;  // when it was listened for, or its handle came; on now_ns()'s clock
  int64_t first_poll_ns = 0;
  bool refused = false;  // its connect or accept returned an error: it is over
  bool unpacks = false;  // the plugin wants a device handle block at accept
  int64_t listen_ns = 0;
  int64_t establish_ns = 0;  // from the first connect or accept to a comm
  int64_t register_ns = 0;
};

std::string describe(const Comm& comm);
// The same, for what a call of the plugin is about (plugin_call::About).
std::string words_of(const void* comm);

// Throws PluginError for a code that is none of success, with the plugin's own words: those since
// `began_ns` too, if this call was given none.
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
void check_call(int code, const char* call, const std::string& what, int64_t began_ns = kNever);

// The plugin's listen, for one comm to come.
void open_listener(Net& net, int device, Comm& comm);

// One call of the plugin's connect or accept, by the direction; its code.
int open_comm(Net& net, int device, Comm& comm);

// How memory is registered: by its address, or as a dma-buf.
struct Registration {
  Registration(int pointer = kNetPtrHost, bool as_dma_buf = false)
      : type(pointer), dma_buf(as_dma_buf) {}
  int type;
  bool dma_buf;  // of a GPU's memory
};

// The mhandles of a stretch of memory on a comm, by region. Throws PluginError; then nothing stays
// registered.
std::vector<void*> register_regions(Net& net, const Comm& comm, uint8_t* data, size_t bytes,
                                    Registration how);

}  // namespace tcpx
