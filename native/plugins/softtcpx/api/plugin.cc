// The table: every call checks its arguments here, and goes on to the object that does the work.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <vector>

#include "net/abi_v7.h"
#include "plugins/softtcpx/api/log.h"
#include "plugins/softtcpx/api/registration.h"
#include "plugins/softtcpx/api/settings.h"
#include "plugins/softtcpx/gpu/cuda.h"
#include "plugins/softtcpx/gpu/device.h"
#include "plugins/softtcpx/handshake/connector.h"
#include "plugins/softtcpx/handshake/listener.h"
#include "plugins/softtcpx/transfer/recv_comm.h"
#include "plugins/softtcpx/transfer/send_comm.h"

namespace softtcpx {
namespace {

struct Plugin {
  std::mutex mutex;
  bool tried = false;  // init was called, with whatever result
  bool ready = false;
  std::atomic<pid_t> user{0};  // the process that set up connections first
  Settings settings;
  std::vector<std::unique_ptr<Device>> devices;
};

Plugin& plugin() {
  static Plugin* one =
      new Plugin;  // never destroyed: there is no finalize, and threads may live on
  return *one;
}

// A child that is forked after that has none of our threads, and shares our epoll: what is told
// there of its connections would be heard here, as of addresses of its own.
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

template <class T>
T* as(void* pointer, ObjectKind kind) {
  auto* object = static_cast<Object*>(pointer);
  return object != nullptr && object->kind() == kind ? static_cast<T*>(object) : nullptr;
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

// As unkind as TCPX, where traps say so.
const Traps& traps() { return plugin().settings.traps; }

// Lines that init has besides.
void pad_init_lines(const Plugin& self) {
  const auto said = static_cast<int64_t>(self.settings.description.size() + self.devices.size());
  for (int64_t i = said; i < traps().init_lines; ++i) {
    const std::string text = "init line " + std::to_string(i);
    log_init_line(__func__, __LINE__, i == said ? nullptr : text.c_str());
  }
}

int set_up(Plugin& self) {
  self.settings = load_settings();
  const std::string& spec = self.settings.data_interfaces.empty() ? self.settings.socket_interfaces
                                                                  : self.settings.data_interfaces;
  for (Interface& interface :
       choose_interfaces(spec, find_interfaces(), traps().long_prefixes != 0 ? 2 : 1)) {
    auto device = std::make_unique<Device>(static_cast<int>(self.devices.size()),
                                           std::move(interface), self.settings);
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

int init(NetLogger logger) {
  return guarded("init", [&] {
    Plugin& self = plugin();
    const std::lock_guard<std::mutex> lock(self.mutex);
    if (self.tried) return static_cast<int>(kNetInternalError);
    self.tried = true;
    set_logger(logger);
    return set_up(self);
  });
}

int devices(int* count) {
  if (count == nullptr) return kNetInvalidArgument;
  if (!plugin().ready) return kNetInvalidUsage;
  *count = static_cast<int>(plugin().devices.size());
  return kNetSuccess;
}

int get_properties(int index, NetPropertiesV7* properties) {
  const Device* device = device_at(index);
  if (device == nullptr && traps().takes_all != 0) device = device_at(0);
  if (device == nullptr || properties == nullptr) return kNetInvalidArgument;
  const Interface& nic = device->interface;
  *properties = NetPropertiesV7{};
  properties->name = nic.name.c_str();
  properties->pci_path = nic.pci_path.empty() ? nullptr : nic.pci_path.c_str();
  properties->guid = static_cast<uint64_t>(index);
  properties->ptr_support = kNetPtrHost | kNetPtrCuda;
  properties->speed_mbps = nic.speed_mbps;
  properties->max_comms = 65536;
  properties->max_recvs = 1;
  properties->net_device_type = kNetDeviceUnpack;
  properties->net_device_version = kNetUnpackVersion;
  return kNetSuccess;
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
    return code;
  });
}

int connect(int index, void* handle, void** send_comm, NetDeviceHandle**) {
  Device* device = device_at(index);
  if (device == nullptr || handle == nullptr || send_comm == nullptr) return kNetInvalidArgument;
  *send_comm = nullptr;
  if (forked()) return kNetInvalidUsage;
  return guarded("connect", [&] {
    std::unique_ptr<SendComm> comm;
    const int code = connect_step(*device, handle, &comm);
    *send_comm = static_cast<Object*>(comm.release());
    return code;
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
    if (comm != nullptr && recv_device != nullptr && *recv_device != nullptr) {
      **recv_device = NetDeviceHandle{kNetDeviceUnpack, kNetUnpackVersion, comm->offer_device(),
                                      sizeof(NetUnpackDevice), 1};
    }
    *recv_comm = static_cast<Object*>(comm.release());
    return code;
  });
}

Comm* as_comm(void* pointer) {
  Comm* comm = as<SendComm>(pointer, ObjectKind::kSendComm);
  return comm != nullptr ? comm : as<RecvComm>(pointer, ObjectKind::kRecvComm);
}

int reg_mr(void* comm_pointer, void* data, int size, int type, void** mhandle) {
  Comm* comm = as_comm(comm_pointer);
  if (comm == nullptr || mhandle == nullptr || size < 0 ||
      (type != kNetPtrHost && type != kNetPtrCuda))
    return kNetInvalidArgument;
  const bool odd_size = static_cast<uint32_t>(size) % kBouncePageBytes != 0;
  if (type == kNetPtrCuda && (reinterpret_cast<uintptr_t>(data) % kBouncePageBytes != 0 ||
                              (odd_size && traps().takes_all == 0) || size == 0)) {
    SOFTTCPX_WARN("regMr: %d bytes at %p; GPU memory is registered in whole pages of %u bytes",
                  size, data, kBouncePageBytes);
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

int dereg_mr(void*, void* mhandle) {
  if (mhandle == nullptr) return kNetSuccess;
  auto* region = as<Region>(mhandle, ObjectKind::kRegion);
  if (region == nullptr) return kNetInvalidArgument;
  delete region;
  return kNetSuccess;
}

int isend(void* send_comm, void* data, int size, int, void* mhandle, void** request) {
  auto* comm = as<SendComm>(send_comm, ObjectKind::kSendComm);
  if (comm == nullptr && as_comm(send_comm) != nullptr && traps().takes_all != 0)
    return kNetSuccess;  // and no request comes of it
  if (comm == nullptr || request == nullptr) return kNetInvalidArgument;
  auto* region = as<Region>(mhandle, ObjectKind::kRegion);
  if (region != nullptr && region->memory == Memory::kGpu && !comm->copies_gpu_memory()) {
    // A registration is the NIC's: this one was made for another connection.
    const int code = guarded("isend", [&] {
      comm->serve_gpu_memory(region->gpu);
      return static_cast<int>(kNetSuccess);
    });
    if (code != kNetSuccess) return code;
  }
  return comm->send(data, size, region, request);
}

int irecv(void* recv_comm, int n, void** data, int* sizes, int*, void** mhandles, void** request) {
  auto* comm = as<RecvComm>(recv_comm, ObjectKind::kRecvComm);
  if (comm == nullptr || n != 1 || data == nullptr || sizes == nullptr || mhandles == nullptr ||
      request == nullptr)
    return kNetInvalidArgument;
  return comm->receive(data[0], sizes[0], as<Region>(mhandles[0], ObjectKind::kRegion), request);
}

// Host memory needs no flush: the answer is "nothing to wait for".
int iflush(void* recv_comm, int, void**, int*, void**, void** request) {
  if (as<RecvComm>(recv_comm, ObjectKind::kRecvComm) == nullptr || request == nullptr)
    return kNetInvalidArgument;
  *request = nullptr;
  return kNetSuccess;
}

int test(void* request_pointer, int* done, int* sizes) {
  const auto* request = static_cast<const Request*>(request_pointer);
  if (request == nullptr || done == nullptr) return kNetInvalidArgument;
  return request->comm->test(*request, done, sizes);
}

// The wrong close for it, which TCPX takes.
int close_whatever(void* pointer) {
  delete as_comm(pointer);
  delete as<Listener>(pointer, ObjectKind::kListener);
  return kNetSuccess;
}

template <class T, ObjectKind kind>
int close(void* pointer) {
  if (pointer == nullptr) return kNetSuccess;
  T* object = as<T>(pointer, kind);
  if (object == nullptr && traps().takes_all != 0) return close_whatever(pointer);
  if (object == nullptr) return kNetInvalidArgument;
  delete object;
  return kNetSuccess;
}

template <class T, ObjectKind kind>
int close_comm(void* pointer) {
  T* comm = as<T>(pointer, kind);
  const int code = comm != nullptr ? comm->finish() : kNetSuccess;
  const int closed = close<T, kind>(pointer);
  return closed != kNetSuccess ? closed : code;
}

int get_device_mr(void*, void*, void**) { return kNetSuccess; }

int irecv_consumed(void* recv_comm, int n, void* request) {
  auto* comm = as<RecvComm>(recv_comm, ObjectKind::kRecvComm);
  if (comm == nullptr && as_comm(recv_comm) != nullptr && traps().takes_all != 0)
    return kNetSuccess;
  if (comm == nullptr || n != 1 || request == nullptr) return kNetInvalidArgument;
  return comm->consumed(*static_cast<const Request*>(request));
}

int with_traps(int code) {
  if (code == kNetInvalidArgument && traps().codes != 0) code = kNetInternalError;
  if (traps().trace != 0) SOFTTCPX_INFO("%s:%d -> %d", __FILE__, __LINE__, code);
  return code;
}

// A call of the table, and what traps make of its error.
template <auto call>
struct Answer;
template <class... Arguments, int (*call)(Arguments...)>
struct Answer<call> {
  static int of(Arguments... arguments) {
    const int code = call(arguments...);
    return __builtin_expect(code == kNetSuccess, true) ? code : with_traps(code);
  }
};
template <auto call>
constexpr auto answer = Answer<call>::of;

}  // namespace
}  // namespace softtcpx

// The only symbol that the library exports.
extern "C" {
__attribute__((visibility("default"))) extern const NetTableV7 ncclNetPlugin_v7;
const NetTableV7 ncclNetPlugin_v7 = {
    "softtcpx_v7",
    softtcpx::answer<softtcpx::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::get_properties>,
    softtcpx::answer<softtcpx::listen>,
    softtcpx::answer<softtcpx::connect>,
    softtcpx::answer<softtcpx::accept>,
    softtcpx::answer<softtcpx::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::isend>,
    softtcpx::answer<softtcpx::irecv>,
    softtcpx::answer<softtcpx::iflush>,
    softtcpx::answer<softtcpx::test>,
    softtcpx::answer<softtcpx::close_comm<softtcpx::SendComm, softtcpx::ObjectKind::kSendComm>>,
    softtcpx::answer<softtcpx::close_comm<softtcpx::RecvComm, softtcpx::ObjectKind::kRecvComm>>,
    softtcpx::answer<softtcpx::close<softtcpx::Listener, softtcpx::ObjectKind::kListener>>,
    softtcpx::answer<softtcpx::get_device_mr>,
    softtcpx::answer<softtcpx::irecv_consumed>,
};
}
