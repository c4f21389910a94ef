#include "softtcpx/api/calls.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <vector>

#include "softtcpx/api/registration.h"
#include "softtcpx/environment/log.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/environment/share.h"
#include "softtcpx/environment/trace.h"
#include "softtcpx/gpu/cuda.h"
#include "softtcpx/handshake/connector.h"
#include "softtcpx/handshake/listener.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {
namespace {

struct Plugin {
  std::mutex mutex;
  bool tried = false;  // init was called, with whatever result
  bool ready = false;
  int contexts = 0;            // from v11 on
  std::atomic<int> open{0};    // listeners and comms, which stand on the devices
  std::atomic<pid_t> user{0};  // the process that set up connections first
  Settings settings;
  std::optional<Presence> presence;
  std::vector<std::unique_ptr<Device>> devices;
};

Plugin& plugin() {
  static Plugin* one = new Plugin;  // never destroyed: threads may outlive static objects
  return *one;
}

// A child that is forked after that has none of our threads, and shares our epoll: events of its
// connections would arrive here, with addresses of its own.
bool forked() {
  const pid_t here = ::getpid();
  pid_t user = 0;
  if (plugin().user.compare_exchange_strong(user, here) || user == here) return false;
  SOFTTCPX_WARN(
      "process %d was forked from process %d when that had set up connections, and can have none "
      "of "
      "its own: start it by spawn",
      static_cast<int>(here), static_cast<int>(user));
  return true;
}

Device* device_at(int index) {
  Plugin& self = plugin();
  if (!self.ready || index < 0 || static_cast<size_t>(index) >= self.devices.size()) return nullptr;
  return self.devices[static_cast<size_t>(index)].get();
}

// No exception leaves the library. The calls that move data throw nothing and need no guard.
template <class Call>
int guarded(const char* name, Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    SOFTTCPX_WARN("%s: out of memory", name);
    return kNetSystemError;
  } catch (const std::system_error& error) {
    SOFTTCPX_WARN("%s: %s", name, error.what());
    return kNetSystemError;
  } catch (const CudaError& error) {
    SOFTTCPX_WARN("%s: %s", name, error.what());
    return kNetUnhandledCudaError;
  } catch (const std::exception& error) {
    SOFTTCPX_WARN("%s: %s", name, error.what());
    return kNetInternalError;
  }
}

struct Context : Object {
  explicit Context(int of_traffic) : Object(ObjectKind::kContext), traffic_class(of_traffic) {}
  const int traffic_class;
};

// Lines that init has besides.
void pad_init_lines(const Plugin& self) {
  const auto said = static_cast<int64_t>(self.settings.description.size() + self.devices.size());
  for (int64_t i = said; i < traps().init_lines; ++i) {
    const std::string text = "init line " + std::to_string(i);
    log_init_line(__func__, __LINE__, i == said ? nullptr : text.c_str());
  }
}

int set_up(Plugin& self, int abi) {
  self.settings = load_settings();
  // Properties of older versions cannot ask for a flush.
  if (self.settings.traps.hidden < 0) self.settings.traps.hidden = abi >= 9 ? 1 : 0;
  open_trace(self.settings);
  if (self.settings.workers_by_cores) self.presence.emplace();
  const std::string& spec = self.settings.data_interfaces.empty() ? self.settings.socket_interfaces
                                                                  : self.settings.data_interfaces;
  for (Interface& interface :
       choose_interfaces(spec, find_interfaces(), traps().long_prefixes != 0 ? 2 : 1)) {
    auto device =
        std::make_unique<Device>(static_cast<int>(self.devices.size()), std::move(interface),
                                 self.settings, self.presence ? &*self.presence : nullptr);
    if (!device->poller.open()) {
      SOFTTCPX_WARN("no descriptor for the poller of %s", device->interface.name.c_str());
      return kNetSystemError;
    }
    self.devices.push_back(std::move(device));
  }
  for (const std::string& line : self.settings.description)
    log_init_line(__func__, __LINE__, line.c_str());
  for (const auto& device : self.devices) {
    const Interface& nic = device->interface;
    const std::string line = "device " + std::to_string(device->index) + ": " + nic.name + ", " +
                             address_text(nic.address) + ", " + std::to_string(nic.speed_mbps) +
                             " Mb/s, " + (nic.pci_path.empty() ? "virtual" : nic.pci_path);
    log_init_line(__func__, __LINE__, line.c_str());
  }
  pad_init_lines(self);
  if (self.devices.empty() && traps().codes != 0) {
    SOFTTCPX_WARN("no interface found");
    return kNetInternalError;
  }
  if (self.devices.empty()) SOFTTCPX_WARN("no interface with an IPv4 address is up");
  self.ready = true;
  return kNetSuccess;
}

// With the descriptors that they have; not while anything stands on them.
void let_go_of_devices(Plugin& self) {
  if (self.open != 0) return;
  self.devices.clear();
  self.presence.reset();
  self.ready = self.tried = false;
}

// Where the library is unloaded. At the end of a process too, which is then nobody's loss.
__attribute__((destructor)) void unloaded() {
  Plugin& self = plugin();
  const std::unique_lock<std::mutex> lock(self.mutex, std::try_to_lock);
  if (lock.owns_lock()) let_go_of_devices(self);
}

int opened(int code, const void* object) {
  if (code == kNetSuccess && object != nullptr) ++plugin().open;
  return code;
}

}  // namespace

const Traps& traps() { return plugin().settings.traps; }
bool is_direct() { return plugin().settings.direct; }
int max_receives() { return static_cast<int>(plugin().settings.max_recvs); }
bool takes_dma_buf() { return plugin().settings.dma_buf != 0 && exports_dma_buf(); }

int init(int abi, NetLogger logger) {
  return guarded("init", [&] {
    Plugin& self = plugin();
    const std::lock_guard<std::mutex> lock(self.mutex);
    if (self.tried) return static_cast<int>(kNetInternalError);
    self.tried = true;
    set_logger(logger);
    return set_up(self, abi);
  });
}

int init_context(int abi, void** context, NetLogger logger, int traffic_class) {
  if (context == nullptr) return kNetInvalidArgument;
  return guarded("init", [&] {
    Plugin& self = plugin();
    const std::lock_guard<std::mutex> lock(self.mutex);
    auto made = std::make_unique<Context>(traffic_class);
    if (self.contexts == 0 && !self.ready) {
      set_logger(logger);
      const int code = set_up(self, abi);
      if (code != kNetSuccess) {
        let_go_of_devices(self);
        return code;
      }
    }
    ++self.contexts;
    *context = static_cast<Object*>(made.release());
    return static_cast<int>(kNetSuccess);
  });
}

int finalize(void* context) {
  auto* found = as<Context>(context, ObjectKind::kContext);
  if (found == nullptr) return kNetInvalidArgument;
  Plugin& self = plugin();
  const std::lock_guard<std::mutex> lock(self.mutex);
  delete found;
  if (--self.contexts == 0) let_go_of_devices(self);
  return kNetSuccess;
}

int traffic_class_of(void* context) {
  const auto* found = as<Context>(context, ObjectKind::kContext);
  return found != nullptr ? found->traffic_class : -1;
}

bool is_context(void* context) { return as<Context>(context, ObjectKind::kContext) != nullptr; }

int devices(int* count) {
  if (count == nullptr) return kNetInvalidArgument;
  if (!plugin().ready) return kNetInvalidUsage;
  *count = static_cast<int>(plugin().devices.size());
  return kNetSuccess;
}

const Interface* interface_of(int index) {
  const Device* device = device_at(index);
  if (device == nullptr && traps().takes_all != 0) device = device_at(0);
  return device != nullptr ? &device->interface : nullptr;
}

int listen(int index, void* handle, void** listen_comm) {
  Device* device = device_at(index);
  if (device == nullptr || handle == nullptr || listen_comm == nullptr) return kNetInvalidArgument;
  if (forked()) return kNetInvalidUsage;
  return guarded("listen", [&] {
    auto listener = std::make_unique<Listener>(*device);
    ListenHandle filled;
    const int code = listener->open(&filled);
    if (code != kNetSuccess) return code;
    std::memcpy(handle, &filled, sizeof filled);
    *listen_comm = static_cast<Object*>(listener.release());
    return opened(code, *listen_comm);
  });
}

int connect(int index, void* handle, void** send_comm, int traffic_class) {
  Device* device = device_at(index);
  if (device == nullptr || handle == nullptr || send_comm == nullptr) return kNetInvalidArgument;
  *send_comm = nullptr;
  if (forked()) return kNetInvalidUsage;
  return guarded("connect", [&] {
    std::unique_ptr<SendComm> comm;
    const int code = connect_step(*device, handle, traffic_class, &comm);
    *send_comm = static_cast<Object*>(comm.release());
    return opened(code, *send_comm);
  });
}

// A caller that unpacks passes a pointer to its own block; TCPX crashes where there is none.
int accept(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device) {
  auto* listener = as<Listener>(listen_comm, ObjectKind::kListener);
  if (listener == nullptr || recv_comm == nullptr) return kNetInvalidArgument;
  *recv_comm = nullptr;
  if (forked()) return kNetInvalidUsage;
  return guarded("accept", [&] {
    const Gpu& at_listen = listener->gpu();
    const Gpu here = at_listen ? current_gpu() : Gpu{};
    if (here && here.context != at_listen.context) {
      SOFTTCPX_WARN("accept: another context is current (GPU %d) than at listen (GPU %d)",
                    here.ordinal, at_listen.ordinal);
      return static_cast<int>(kNetInvalidUsage);
    }
    const CurrentContext current(at_listen);  // where none is, that of listen holds
    std::unique_ptr<RecvComm> comm;
    const int code = listener->accept(&comm);
    if (comm != nullptr && !is_direct() && recv_device != nullptr && *recv_device != nullptr) {
      **recv_device = NetDeviceHandle{kNetDeviceUnpack, kNetUnpackVersion, comm->offer_device(),
                                      sizeof(NetUnpackDevice), 1};
    }
    *recv_comm = static_cast<Object*>(comm.release());
    return opened(code, *recv_comm);
  });
}

int reg_mr(void* comm_pointer, void* data, int64_t size, int type, void** mhandle) {
  Comm* comm = as_comm(comm_pointer);
  if (comm == nullptr || mhandle == nullptr || size < 0 ||
      (type != kNetPtrHost && type != kNetPtrCuda))
    return kNetInvalidArgument;
  const bool odd_size = static_cast<uint64_t>(size) % kBouncePageBytes != 0;
  if (type == kNetPtrCuda && !is_direct() &&
      (reinterpret_cast<uintptr_t>(data) % kBouncePageBytes != 0 ||
       (odd_size && traps().takes_all == 0) || size == 0)) {
    SOFTTCPX_WARN("regMr: %lld bytes at %p; GPU memory is registered in whole pages of %u bytes",
                  static_cast<long long>(size), data, kBouncePageBytes);
    return kNetInvalidArgument;
  }
  if (data == nullptr && size > 0) return kNetInvalidArgument;
  return guarded("regMr", [&] {
    const auto bytes = static_cast<uint64_t>(size);
    const Gpu gpu = comm->gpu() ? comm->gpu() : current_gpu();
    std::optional<Memory> memory = Memory::kHost;
    if (type == kNetPtrCuda) memory = gpu_memory(*comm, gpu, data, bytes);
    if (!memory) return static_cast<int>(kNetInvalidArgument);
    *mhandle = static_cast<Object*>(
        std::make_unique<Region>(&comm->device(), data, bytes, *memory, gpu).release());
    return static_cast<int>(kNetSuccess);
  });
}

// There is no NIC to reach the memory by its descriptor: that is looked at, and the address is
// used.
int reg_mr_dma_buf(void* comm, void* data, int64_t size, int type, uint64_t offset, int fd,
                   void** mhandle) {
  if (type != kNetPtrCuda) return kNetInvalidArgument;
  const off_t length = ::lseek(fd, 0, SEEK_END);
  if (length < 0) {
    SOFTTCPX_WARN("regMrDmaBuf: descriptor %d is no dma-buf: %s", fd, std::strerror(errno));
    return kNetInvalidArgument;
  }
  const auto bytes = static_cast<uint64_t>(length);
  if (offset > bytes || static_cast<uint64_t>(size) > bytes - offset) {
    SOFTTCPX_WARN("regMrDmaBuf: %lld bytes at %llu are beyond the end of a dma-buf of %llu",
                  static_cast<long long>(size), static_cast<unsigned long long>(offset),
                  static_cast<unsigned long long>(bytes));
    return kNetInvalidArgument;
  }
  return reg_mr(comm, data, size, type, mhandle);
}

int dereg_mr(void*, void* mhandle) {
  if (mhandle == nullptr) return kNetSuccess;
  auto* region = as<Region>(mhandle, ObjectKind::kRegion);
  if (region == nullptr) return kNetInvalidArgument;
  delete region;
  return kNetSuccess;
}

int serve_gpu_memory(SendComm& comm, const Gpu& gpu) {
  return guarded("isend", [&] {
    comm.serve_gpu_memory(gpu);
    return static_cast<int>(kNetSuccess);
  });
}

int serve_in_place(RecvComm& comm, const Region& region) {
  return guarded("irecv", [&] {
    const bool served = comm.in_place()->serve(region.memory, region.gpu);
    return static_cast<int>(served ? kNetSuccess : kNetInvalidArgument);
  });
}

int iflush_in_place(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                    void** request) {
  auto* comm = as<RecvComm>(recv_comm, ObjectKind::kRecvComm);
  if (comm == nullptr || n < 1 || n > kMostReceives || data == nullptr || sizes == nullptr ||
      mhandles == nullptr || request == nullptr)
    return kNetInvalidArgument;
  for (int i = 0; i < n; ++i) {
    const auto* region = as<Region>(mhandles[i], ObjectKind::kRegion);
    if (sizes[i] < 0 || region == nullptr ||
        !region->contains(data[i], static_cast<uint64_t>(sizes[i])))
      return kNetInvalidArgument;
  }
  return comm->flush(n, data, sizes, request);
}

// Host memory needs no flush: the answer is "nothing to wait for".
int iflush(void* recv_comm, int, void**, int*, void**, void** request) {
  if (as<RecvComm>(recv_comm, ObjectKind::kRecvComm) == nullptr || request == nullptr)
    return kNetInvalidArgument;
  *request = nullptr;
  return kNetSuccess;
}

namespace {

// The wrong close for it, which TCPX takes.
int close_whatever(void* pointer) {
  Comm* comm = as_comm(pointer);
  auto* listener = as<Listener>(pointer, ObjectKind::kListener);
  if (comm != nullptr || listener != nullptr) --plugin().open;
  delete comm;
  delete listener;
  return kNetSuccess;
}

template <class T, ObjectKind kind>
int close(void* pointer) {
  if (pointer == nullptr) return kNetSuccess;
  T* object = as<T>(pointer, kind);
  if (object == nullptr && traps().takes_all != 0) return close_whatever(pointer);
  if (object == nullptr) return kNetInvalidArgument;
  delete object;
  --plugin().open;
  return kNetSuccess;
}

template <class T, ObjectKind kind>
int close_comm(void* pointer) {
  T* comm = as<T>(pointer, kind);
  const int code = comm != nullptr ? comm->finish() : kNetSuccess;
  const int closed = close<T, kind>(pointer);
  return closed != kNetSuccess ? closed : code;
}

}  // namespace

int close_send(void* comm) { return close_comm<SendComm, ObjectKind::kSendComm>(comm); }
int close_recv(void* comm) { return close_comm<RecvComm, ObjectKind::kRecvComm>(comm); }
int close_listen(void* comm) { return close<Listener, ObjectKind::kListener>(comm); }

int get_device_mr(void*, void*, void**) { return kNetSuccess; }

int with_traps(int code) {
  if (code == kNetInvalidArgument && traps().codes != 0) code = kNetInternalError;
  if (traps().trace != 0) SOFTTCPX_INFO("%s:%d -> %d", __FILE__, __LINE__, code);
  return code;
}

}  // namespace softtcpx
