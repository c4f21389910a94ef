// A net plugin of v11 that keeps the contract, but for one fault of FAULT: for each clause of
// `tcpx-mpi conform` there is one that breaks it and no other.
//
// Loopback, host memory, two devices and what is made of them, 16 requests a comm, groups of 4
// receives. Nothing moves but in calls. Where it says that it unpacks, accept fills a device block,
// which no message in host memory needs. With FAULTY_MEMORY=cuda it takes memory of GPUs, too, by
// address and as dma-bufs, and puts what it receives in place by copies of the driver.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/abi_v11.h"

extern "C" __attribute__((visibility("default"))) NetTableV11 ncclNetPlugin_v11;

namespace {

constexpr size_t kQueue = 16;
constexpr int kGroup = 4;
constexpr int kPatience = 20;
constexpr int kWraps = 4096;  // messages of a comm
constexpr int kRarely = 500;  // messages of a process
constexpr uint32_t kData = 1, kBye = 2;

// Those who say it twice have a fault in one call alone.
bool fault(const char* name) {
  static const std::string chosen = getenv("FAULT") != nullptr ? getenv("FAULT") : "";
  return chosen == name;
}

// Faults of the device block; the first is none.
bool unpacks() {
  return fault("unpacks") || fault("buffer-a-comm") || fault("buffer-a-device") ||
         fault("other-unpack") || fault("type-without-entries");
}

// Of a plugin with room for one, the sends of a group would not fit.
bool takes_one() { return fault("one-request") || fault("full-fails"); }

[[noreturn]] void hang() {
  for (;;) pause();
}

// --- Memory of GPUs -----------------------------------------------------------------------------

bool takes_gpus() {
  static const bool chosen = getenv("FAULTY_MEMORY") != nullptr;
  return chosen;
}

using CudaAddress = unsigned long long;
constexpr int kMemoryType = 2, kDeviceOrdinal = 9;
constexpr int kOnDevice = 2;

template <class Result, class... Arguments>
Result cuda(const char* name, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) abort();
  return reinterpret_cast<Result (*)(Arguments...)>(found)(arguments...);
}

int attribute_of(const void* data, int which) {
  int value = -1;
  const auto address = reinterpret_cast<CudaAddress>(data);
  const int code = cuda<int>("cuPointerGetAttribute", static_cast<void*>(&value), which, address);
  return code == 0 ? value : -1;
}

struct Allocation {
  CudaAddress base = 0;
  size_t bytes = 0;
};

Allocation allocation_of(const void* data) {
  Allocation found;
  cuda<int>("cuMemGetAddressRange_v2", &found.base, &found.bytes,
            reinterpret_cast<CudaAddress>(data));
  return found;
}

void copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  cuda<int>("cuMemcpy", reinterpret_cast<CudaAddress>(to), reinterpret_cast<CudaAddress>(from),
            bytes);
  cuda<int>("cuCtxSynchronize");
}

bool is_readable(const void* data) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const bool readable = write(ends[1], data, 1) == 1;
  for (const int end : ends) close(end);
  return readable;
}

struct Region {
  void* data = nullptr;
  bool on_gpu = false;
  bool lost = false;  // of a fault: what is received there is not
  int file = -1;      // of a fault: used later on
};

// --- Messages -----------------------------------------------------------------------------------

struct Header {
  uint64_t bytes;
  uint32_t kind;
  int32_t tag;
};

struct Part {
  uint8_t* data = nullptr;
  uint64_t room = 0;
  int tag = 0;
  uint64_t bytes = 0;
  bool filled = false;
  std::vector<uint8_t> stage{};  // of memory of a GPU: `data` is here,
  void* target = nullptr;        // and of a receive goes there
};

// Where the bytes of a part are for who sends or receives them by sockets.
Part part_of(void* data, uint64_t room, int tag, void* mhandle, bool sends) {
  Part part{static_cast<uint8_t*>(data), room, tag};
  const auto* region = static_cast<const Region*>(mhandle);
  if (room == 0 || !(region->on_gpu || region->lost)) return part;
  part.stage.resize(room);
  part.data = part.stage.data();
  if (sends) copy(part.data, data, room);
  if (!sends && !region->lost) part.target = data;
  return part;
}

struct Comm;

struct Request {
  Comm* comm = nullptr;
  Part parts[kGroup];
  int n = 1;
  int number = 0;
  bool done = false;
};

struct Comm {
  int fd;
  bool sends;
  uint64_t id = 0;               // of both ends alike
  std::deque<Request*> queue{};  // what is not done, the oldest first
  size_t held = 0;               // requests that are not released
  int posted = 0;
  int code = 0;
  std::set<const void*> registered{};
  NetUnpackDevice block{};
  // The message under way.
  Header header{};
  size_t moved = 0;  // of the header, then of the bytes
  bool has_header = false;
  Part* into = nullptr;
};

std::mutex g_opening;
std::set<Comm*> g_open;
Comm* g_newest = nullptr;

bool moves(Comm* comm, const void* data, size_t bytes, bool out) {
  const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  auto* at = static_cast<uint8_t*>(const_cast<void*>(data)) + comm->moved;
  const size_t left = bytes - comm->moved;
  if (left == 0) return true;
  const ssize_t n = out ? send(comm->fd, at, left, flags) : recv(comm->fd, at, left, flags);
  if (n > 0) comm->moved += static_cast<size_t>(n);
  const bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
  const char* silent = out ? "lost-receiver-silent" : "lost-sender-silent";
  if (n <= 0 && !again && !fault(silent)) comm->code = kNetRemoteError;
  return comm->moved == bytes;
}

void finish(Comm* comm, Request* request) {
  request->done = true;
  comm->queue.pop_front();
  if (fault("completes-twice") && !comm->sends && !comm->queue.empty()) {
    comm->queue.front()->done = true;
    comm->queue.pop_front();
  }
}

std::atomic<int> g_arrived{0};

void progress_send(Comm* comm) {
  while (!comm->queue.empty() && comm->code == 0) {
    Request* request = comm->queue.front();
    Part& part = request->parts[0];
    if (!comm->has_header) {
      comm->header = {part.room, kData, part.tag};
      if (!moves(comm, &comm->header, sizeof comm->header, true)) return;
      comm->has_header = true;
      comm->moved = 0;
    }
    if (!moves(comm, part.data, part.room, true)) return;
    comm->has_header = false;
    comm->moved = 0;
    finish(comm, request);
  }
}

Part* place_of(Comm* comm) {
  Request* request = comm->queue.front();
  if (fault("reorders") && comm->queue.size() > 2 && request->n == 1 &&
      !comm->queue[1]->parts[0].filled && request->parts[0].data != nullptr) {
    std::swap(request->parts[0], comm->queue[1]->parts[0]);
  }
  for (int i = 0; i < request->n; ++i) {
    Part& part = request->parts[i];
    const bool fits = request->n == 1 || fault("tags-ignored") || part.tag == comm->header.tag;
    if (!part.filled && fits) return &part;
  }
  return nullptr;
}

void progress_receive(Comm* comm) {
  if (fault("one-comm") && comm != g_newest) return;
  while (!comm->queue.empty() && comm->code == 0) {
    Request* request = comm->queue.front();
    if (!comm->has_header) {
      if (!moves(comm, &comm->header, sizeof comm->header, false)) return;
      if (comm->header.kind == kBye) {
        comm->moved = 0;
        if (fault("bye-ignored")) hang();
        comm->code = kNetRemoteError;
        return;
      }
      comm->has_header = true;
      comm->moved = 0;
      comm->into = place_of(comm);
      if (comm->into == nullptr || comm->header.bytes > comm->into->room) {
        comm->code = kNetInvalidUsage;
        return;
      }
    }
    if (comm->header.bytes == 0 && fault("empty-never-done")) return;
    if (!moves(comm, comm->into->data, comm->header.bytes, false)) return;
    comm->has_header = false;
    comm->moved = 0;
    Part* part = comm->into;
    part->bytes = comm->header.bytes;
    part->filled = true;
    if (fault("garbles") && part->bytes > 0) part->data[part->bytes / 2] ^= 1;
    const bool odd = reinterpret_cast<uintptr_t>(part->data) % 64 != 0;
    if (fault("odd-places") && odd && part->bytes > 0) *part->data ^= 1;
    if (fault("wraps") && comm->posted > kWraps && part->bytes > 0) *part->data ^= 1;
    if (fault("rarely-wrong") && part->bytes > 0 && ++g_arrived % kRarely == 0) *part->data ^= 1;
    if (fault("overwrites")) memset(part->data + part->bytes, 0, part->room - part->bytes);
    const uintptr_t beyond = reinterpret_cast<uintptr_t>(part->data) % 64;
    if (fault("spills")) memset(part->data - beyond, 0, beyond);
    if (part->target != nullptr) copy(part->target, part->data, part->bytes);
    bool whole = true;
    for (int i = 0; i < request->n; ++i) whole &= request->parts[i].filled;
    if (whole) finish(comm, request);
  }
}

void progress(Comm* comm) { comm->sends ? progress_send(comm) : progress_receive(comm); }

// --- Start --------------------------------------------------------------------------------------

int g_contexts = 0;
bool g_ended = false;     // that one of them has
bool g_outlived = false;  // that another lived on when it did
char g_name[] = "lo";
char g_context[64];
char g_flush, g_flush_of_sizes;
NetProfiler g_profiler = nullptr;
constexpr int kDevices = 2;
std::vector<NetVDeviceV9> g_made;

int init(void** context, uint64_t, NetCommConfig*, NetLogger logger, NetProfiler profiler) {
  static bool before = false;
  if (logger == nullptr) return kNetInvalidArgument;
  if (fault("init-crashes")) abort();
  void* current = nullptr;  // no fault: TCPXO's plugin ends the process where none is
  if (fault("needs-a-gpu") && (cuda<int>("cuCtxGetCurrent", &current) != 0 || !current)) abort();
  if (fault("init-hangs")) hang();
  g_profiler = profiler;
  if (fault("second-init-fails") && g_contexts > 0) return kNetInternalError;
  if (fault("ends-for-good") && g_ended && g_contexts == 0) return kNetSystemError;
  if (fault("loaded-once") && !before && getenv("FAULTY_LOADED") != nullptr) return kNetSystemError;
  before = true;
  setenv("FAULTY_LOADED", "1", 1);
  *context = &g_context[g_contexts++ % 64];
  if (fault("entry-missing")) ncclNetPlugin_v11.irecv = nullptr;
  return kNetSuccess;
}

int finalize(void*) {
  --g_contexts;
  g_ended = true;
  g_outlived |= g_contexts > 0;
  return kNetSuccess;
}

int devices(int* count) {
  *count = fault("no-devices") ? 0 : kDevices + static_cast<int>(g_made.size());
  return kNetSuccess;
}

bool is_device(int device) {
  return device >= 0 && device < kDevices + static_cast<int>(g_made.size());
}

int get_properties(int device, NetPropertiesV11* out) {
  if (!is_device(device)) return kNetInvalidArgument;
  if (fault("other-layout")) {  // that of v7
    memset(static_cast<void*>(out), 0, sizeof *out);
    out->name = g_name;
    out->ptr_support = kNetPtrHost;
    out->reg_is_global = 10000;
    return kNetSuccess;
  }
  const int max_comms = out->max_comms;
  *out = {};
  out->name = g_name;
  out->guid = 1 + static_cast<uint64_t>(device);
  out->ptr_support = kNetPtrHost | (fault("dma-buf-bit") ? kNetPtrDmaBuf : 0) |
                     (takes_gpus() ? kNetPtrCuda | kNetPtrDmaBuf : 0) |
                     (fault("no-sizes") ? kNetPtrCuda : 0);
  out->speed_mbps = 10000;
  out->max_comms = fault("unwritten") ? max_comms : 1024;
  out->max_recvs = takes_one() ? 1 : kGroup;
  if (unpacks()) {
    out->net_device_type = kNetDeviceUnpack;
    out->net_device_version = kNetUnpackVersion + fault("other-unpack");
  }
  out->v_device = device < kDevices ? NetVDeviceV9{1, {device}} : g_made[device - kDevices];
  out->max_p2p_bytes = out->max_coll_bytes = size_t{1} << 40;
  if (fault("endless-message")) out->max_p2p_bytes = SIZE_MAX;
  out->max_multi_request = 1;
  return kNetSuccess;
}

int make_v_device(int* device, NetVDeviceV9* parts) {
  if (fault("v-device-fails")) return kNetInternalError;
  if (parts->ndevs < 1 || parts->ndevs > 4) return kNetInvalidUsage;
  g_made.push_back(*parts);
  if (fault("fused-half")) g_made.back().ndevs = 1;
  *device = kDevices + static_cast<int>(g_made.size()) - 1;
  return kNetSuccess;
}

int set_net_attr(void*, NetAttributes*) {
  return fault("attributes-refused") ? kNetInvalidUsage : kNetSuccess;
}

// --- Connections --------------------------------------------------------------------------------

struct Handle {
  uint16_t port;
  int stage;
  int fd;
  int calls;
  uint64_t id;
};

struct Listener {
  int fd;
  uint64_t id;
  int device;
  int peer = -1;
  int calls = 0;
  bool accepted = false;
};

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int new_socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

int listen_on(void*, int device, void* handle, void** listen_comm) {
  if (!is_device(device)) return kNetInvalidArgument;
  if (fault("one-context") && g_outlived) return kNetInternalError;
  const int fd = new_socket();
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0 || listen(fd, 16) != 0 ||
      getsockname(fd, generic, &length) != 0) {
    return kNetSystemError;
  }
  const uint64_t id = uint64_t{ntohs(address.sin_port)} << 32 | static_cast<uint32_t>(getpid());
  const Handle content{ntohs(address.sin_port), 0, -1, 0, id};
  memset(handle, 0, fault("long-handle") ? kNetHandleBytes + 2 : kNetHandleBytes);
  memcpy(handle, &content, sizeof content);
  *listen_comm = new Listener{fd, id, device};
  return kNetSuccess;
}

Comm* opened(int fd, bool sends, uint64_t id) {
  auto* comm = new Comm{fd, sends};
  comm->id = id;
  const std::lock_guard<std::mutex> lock(g_opening);
  g_open.insert(comm);
  if (!sends) g_newest = comm;
  return comm;
}

int connect_to(void*, int, void* handle, void** send_comm, NetDeviceHandle** send_device) {
  static NetDeviceHandle given{};
  auto* content = static_cast<Handle*>(handle);
  if (fault("connect-refuses")) return kNetSystemError;
  if (fault("connect-hangs")) hang();
  if (fault("connect-impatient") && ++content->calls > kPatience) return kNetRemoteError;
  if (content->stage == 0) {
    content->fd = new_socket();
    const sockaddr_in address = loopback(content->port);
    if (connect(content->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return kNetSystemError;
    }
    content->stage = 1;
  }
  char hello;
  if (recv(content->fd, &hello, 1, MSG_DONTWAIT) != 1) return kNetSuccess;
  *send_comm = opened(content->fd, true, content->id);
  if (fault("device-handle-given")) *send_device = &given;
  return kNetSuccess;
}

// One buffer for all, but for a fault.
void describe(Comm* comm, int device, NetDeviceHandle* handle) {
  static NetUnpackQueue queue{};
  static char buffers[kDevices];
  void* buffer = &buffers[fault("buffer-a-device") ? device % kDevices : 0];
  comm->block = {&queue, fault("buffer-a-comm") ? comm : buffer, ~uint64_t{0}};
  *handle = {kNetDeviceUnpack, kNetUnpackVersion, &comm->block, sizeof comm->block, 1};
}

int accept_from(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device) {
  auto* listener = static_cast<Listener*>(listen_comm);
  if (fault("accept-hangs")) hang();
  pollfd ready{listener->fd, POLLIN, 0};
  if (poll(&ready, 1, 0) < 1) {
    if (fault("accept-exits") && ++listener->calls > kPatience) exit(7);
    if (fault("accept-waits-on") && ++listener->calls > kPatience) hang();
    if (fault("accept-early") && ++listener->calls > kPatience) {
      *recv_comm = opened(new_socket(), false, listener->id);
    }
    return kNetSuccess;
  }
  const int fd = accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (send(fd, "", 1, MSG_NOSIGNAL) != 1) return kNetSystemError;
  listener->accepted = true;
  Comm* comm = opened(fd, false, listener->id);
  if (unpacks()) describe(comm, listener->device, *recv_device);
  *recv_comm = comm;
  if (fault("name-changes")) g_name[0] = 'L';
  return kNetSuccess;
}

int close_comm(void* pointer) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm == nullptr) return kNetSuccess;
  const std::lock_guard<std::mutex> lock(g_opening);
  if (fault("close-order-hangs") && !comm->sends) {
    for (const Comm* other : g_open) {
      if (other->sends && other->id == comm->id) hang();
    }
  }
  if (fault("close-crashes") && !comm->sends) raise(SIGSEGV);
  if (fault("close-pending-crashes") && comm->held > 0 && comm->code == 0) raise(SIGSEGV);
  if (comm->sends) {
    const Header bye{0, kBye, 0};
    send(comm->fd, &bye, sizeof bye, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (!fault("leaks-descriptors")) close(comm->fd);
  g_open.erase(comm);
  delete comm;
  return kNetSuccess;
}

int close_listen(void* listen_comm) {
  auto* listener = static_cast<Listener*>(listen_comm);
  if (fault("close-unused-fails") && !listener->accepted) return kNetInternalError;
  close(listener->fd);
  delete listener;
  return kNetSuccess;
}

// --- Registration -------------------------------------------------------------------------------

// What is wrong with memory of a GPU; 0: nothing.
int look_at(Region& region, size_t size) {
  static int first = -1;
  static std::map<const void*, size_t> known;  // by address the size of its last allocation
  region.on_gpu = attribute_of(region.data, kMemoryType) == kOnDevice;
  if (!region.on_gpu) {
    if (fault("freed-closes")) close(0);
    region.lost = fault("host-as-gpu-lost") && is_readable(region.data);
    return region.lost || fault("freed-taken") ? kNetSuccess : kNetInvalidArgument;
  }
  const int ordinal = attribute_of(region.data, kDeviceOrdinal);
  if (first < 0) first = ordinal;
  if (fault("one-gpu") && ordinal != first) return kNetInvalidArgument;
  if (fault("odd-gpu-refused") && size % 4096 != 0) return kNetInvalidArgument;
  const Allocation whole = allocation_of(region.data);
  const auto end = reinterpret_cast<CudaAddress>(region.data) + size;
  if (fault("end-refused") && end == whole.base + whole.bytes) return kNetInvalidArgument;
  const size_t before = std::exchange(known[region.data], whole.bytes);
  // By a page alone: other clauses, too, meet an address again, by chance and with another size.
  region.lost = fault("stale-region") && before != 0 && whole.bytes == before + 4096;
  return kNetSuccess;
}

int reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) {
  if (type != kNetPtrHost && !takes_gpus()) return kNetInvalidArgument;
  if (fault("register-hangs")) hang();
  if (fault("odd-refused") && reinterpret_cast<uintptr_t>(data) % 4096 != 0) {
    return kNetInvalidArgument;
  }
  if (fault("region-narrows") && size > INT_MAX) return kNetInvalidArgument;
  Region region;
  region.data = data;
  if (const int code = type != kNetPtrHost ? look_at(region, size) : kNetSuccess) return code;
  auto& registered = static_cast<Comm*>(comm)->registered;
  if (!registered.insert(data).second && fault("twice-refused")) return kNetInvalidArgument;
  *mhandle = new Region(region);
  return kNetSuccess;
}

int reg_mr_dma_buf(void* comm, void* data, size_t size, int type, uint64_t offset, int file,
                   void** mhandle) {
  if (fcntl(file, F_GETFD) < 0 && !fault("dma-buf-any")) return kNetInvalidArgument;
  if (fault("dma-buf-offset-refused") && offset != 0) return kNetInvalidArgument;
  const int code = reg_mr(comm, data, size, type, mhandle);
  if (code == kNetSuccess && fault("dma-buf-late")) static_cast<Region*>(*mhandle)->file = file;
  return code;
}

int dereg_mr(void* comm, void* mhandle) {
  const auto* region = static_cast<const Region*>(mhandle);
  static_cast<Comm*>(comm)->registered.erase(region->data);
  delete region;
  return kNetSuccess;
}

// Of a fault: it needs a descriptor that may be closed by now.
bool is_gone(const void* mhandle) {
  const int file = static_cast<const Region*>(mhandle)->file;
  return file >= 0 && fcntl(file, F_GETFD) < 0;
}

// --- Requests -----------------------------------------------------------------------------------

// A call that nobody else may be in; with a fault it stays for some turns.
class Alone {
 public:
  Alone() : mine_(!counts() || !inside_.test_and_set()) {
    if (!mine_ && fault("two-crash")) raise(SIGSEGV);
    if (!mine_ && fault("two-hang")) hang();
    for (int i = 0; i < kStay && counts(); ++i) sched_yield();
  }
  ~Alone() {
    if (mine_) inside_.clear();
  }
  bool mine() const { return mine_; }

 private:
  static bool counts() { return fault("not-reentrant") || fault("two-crash") || fault("two-hang"); }

  static constexpr int kStay = 5;
  static std::atomic_flag inside_;
  const bool mine_;
};
std::atomic_flag Alone::inside_ = ATOMIC_FLAG_INIT;

void tell_profiler(void* phandle) {
  if (phandle == nullptr && !fault("profiler-stray")) return;
  void* event = nullptr;
  for (const int type : {0, 1}) g_profiler(&event, type, phandle, 1, nullptr);
}

std::atomic<int> g_receives{0};            // that were posted in this process
std::map<const void*, uint64_t> g_posted;  // and how long, by address

Request* post(Comm* comm) {
  const bool accepts_more = fault("seventeenth-lost") && comm->held == kQueue;
  const size_t room = takes_one() ? 1 : kQueue;
  if (comm->held >= room && !accepts_more) return nullptr;
  ++comm->held;
  auto* request = new Request{};
  request->comm = comm;
  request->number = ++comm->posted;
  if (!accepts_more) comm->queue.push_back(request);
  return request;
}

int isend(void* pointer, void* data, size_t size, int tag, void* mhandle, void* phandle,
          void** out) {
  if (is_gone(mhandle)) return kNetInternalError;
  if (fault("phandle-refused") && phandle != nullptr) return kNetInvalidArgument;
  if (fault("message-narrows") && size > INT_MAX) return kNetInvalidArgument;
  const Alone alone;
  if (!alone.mine()) return kNetInternalError;
  tell_profiler(phandle);
  auto* comm = static_cast<Comm*>(pointer);
  // No fault: plugins over RDMA send into receives that they have heard of.
  static int asked = 0;
  if (fault("receiver-first") && (comm->posted >= g_receives || ++asked % 4 != 0)) {
    *out = nullptr;
    return kNetSuccess;
  }
  Request* request = post(comm);
  *out = request;
  if (request == nullptr) return fault("full-fails") ? comm->code = kNetInternalError : kNetSuccess;
  request->parts[0] = part_of(data, size, tag, mhandle, true);
  progress(comm);
  return kNetSuccess;
}

int irecv(void* pointer, int n, void** data, size_t* sizes, int* tags, void** mhandles, void**,
          void** out) {
  if (n < 1 || n > kGroup || (n > 1 && fault("group-refused"))) return kNetInvalidArgument;
  if (fault("optional-crashes") && *out != nullptr) abort();
  const Alone alone;
  if (!alone.mine()) return kNetInternalError;
  auto* comm = static_cast<Comm*>(pointer);
  if (fault("early-lost") && comm->queue.empty()) {
    char drop[4096];
    while (recv(comm->fd, drop, sizeof drop, MSG_DONTWAIT) > 0) continue;
  }
  Request* request = post(comm);
  *out = request;
  if (request == nullptr) return fault("full-fails") ? comm->code = kNetInternalError : kNetSuccess;
  ++g_receives;
  request->n = n;
  for (int i = 0; i < n; ++i) {
    request->parts[i] = part_of(data[i], sizes[i], tags[i], mhandles[i], false);
    g_posted[data[i]] = sizes[i];
  }
  progress(comm);
  return kNetSuccess;
}

int iflush(void* pointer, int n, void** data, int* sizes, void**, void** out) {
  auto* comm = static_cast<Comm*>(pointer);
  char next;
  const bool more = recv(comm->fd, &next, 1, MSG_DONTWAIT | MSG_PEEK) >= 0;
  if (fault("flush-closed-fails") && more) return kNetRemoteError;
  if (fault("flush-one-only") && n > 1) return kNetInvalidUsage;
  for (int i = 0; i < n; ++i) {
    const auto posted = g_posted.find(data[i]);
    if (fault("flush-once")) {
      if (posted == g_posted.end()) return kNetInternalError;
      g_posted.erase(posted);
    }
    if (fault("flush-whole-only") && static_cast<uint64_t>(sizes[i]) != posted->second) {
      return kNetInvalidArgument;
    }
    if (fault("flush-empty-refused") && sizes[i] == 0) return kNetInvalidArgument;
    auto* end = static_cast<uint8_t*>(data[i]) + sizes[i];
    if (fault("flush-spoils")) copy(end - 1, &g_flush, 1);
    if (fault("flush-spills")) copy(end, &g_flush, 1);
  }
  *out = fault("flush-never-done")     ? &g_flush
         : fault("flush-writes-sizes") ? &g_flush_of_sizes
                                       : nullptr;
  return kNetSuccess;
}

int get_device_mr(void*, void*, void**) { return kNetSuccess; }
int irecv_consumed(void*, int, void*) { return kNetSuccess; }

int test(void* pointer, int* done, int* sizes) {
  *done = 0;
  if (pointer == &g_flush) return kNetSuccess;
  if (pointer == &g_flush_of_sizes) {
    *done = 1;
    sizes[0] = 0;
    return kNetSuccess;
  }
  const Alone alone;
  if (!alone.mine()) return kNetInternalError;
  auto* request = static_cast<Request*>(pointer);
  Comm* comm = request->comm;
  if (!request->done) progress(comm);
  if (!request->done) return comm->code;
  *done = 1;
  for (int i = 0; i < request->n && sizes != nullptr && !fault("no-sizes"); ++i) {
    const Part& part = request->parts[i];
    sizes[i] = static_cast<int>(fault("wrong-size") ? part.room : part.bytes);
  }
  constexpr int kSome = 8;  // one of so many is not given back
  if (!fault("leaks-requests") || request->number % kSome != 0) --comm->held;
  delete request;
  return kNetSuccess;
}

}  // namespace

NetTableV11 ncclNetPlugin_v11 = {
    fault("no-name") ? nullptr : "faulty",
    init,
    devices,
    get_properties,
    listen_on,
    connect_to,
    accept_from,
    reg_mr,
    takes_gpus() ? reg_mr_dma_buf : nullptr,
    dereg_mr,
    isend,
    irecv,
    iflush,
    test,
    close_comm,
    close_comm,
    close_listen,
    unpacks() && !fault("type-without-entries") ? get_device_mr : nullptr,
    unpacks() ? irecv_consumed : nullptr,
    make_v_device,
    fault("no-finalize") ? nullptr : finalize,
    set_net_attr,
};
