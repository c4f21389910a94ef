// A second net plugin, written from the published contract alone, so that what is true of one
// plugin only is noticed. It differs from TCPX wherever the contract leaves room:
//
//   - a thread a comm does blocking socket I/O, so progress does not depend on test
//   - 4 requests a comm; a fifth is "busy": success, with a NULL request
//   - test reports sizes; tags must match; a message larger than its receive is an error
//   - no irecvConsumed, no getDeviceMr, no device type; memory of the host only
//   - one device, loopback; connect and accept need at least two calls
//
// It is strict: whatever its caller may not do is refused, with a line in the log.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "net/abi_v7.h"

namespace {

constexpr uint64_t kMagic = 0x6e696c7075666572;  // marks handles and hellos
#ifndef REFPLUGIN_REQUESTS
#define REFPLUGIN_REQUESTS 4
#endif
constexpr uint64_t kQueue = REFPLUGIN_REQUESTS;
constexpr timeval kHelloPatience{2, 0};

NetLogger g_log = nullptr;
bool g_initialised = false;

int refuse(int code, const char* function, int line, const char* what) {
  if (g_log != nullptr) g_log(kNetLogWarn, ~0ul, function, line, "refplugin: %s", what);
  return code;
}
#define REFUSE(code, what) refuse(code, __func__, __LINE__, what)

// --- Sockets ----------------------------------------------------------------------------------

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

  // False when the other side is gone.
  bool write(const void* data, size_t bytes, int flags = 0) {
    const auto* at = static_cast<const uint8_t*>(data);
    while (bytes > 0) {
      const ssize_t n = send(fd_, at, bytes, MSG_NOSIGNAL | flags);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<size_t>(n);
    }
    return true;
  }
  bool read(void* data, size_t bytes) {
    auto* at = static_cast<uint8_t*>(data);
    while (bytes > 0) {
      const ssize_t n = recv(fd_, at, bytes, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int fd_;
};

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// --- What the caller holds ----------------------------------------------------------------------

// The state of a connect is kept in its handle, which may be copied before but not moved during it.
struct Handle {
  uint64_t magic;
  uint64_t secret;
  const Handle* self;  // NULL before the first connect
  uint16_t port;
};
static_assert(sizeof(Handle) <= kNetHandleBytes, "a handle");

struct Hello {
  uint64_t magic;
  uint64_t secret;
};

struct Listener {
  Socket socket;
  uint64_t secret;
  int turns = 0;
  bool over = false;
};

struct Region {
  uint8_t* data;
  size_t bytes;
};

struct Comm;

struct Request {
  Comm* comm = nullptr;
  uint8_t* data = nullptr;
  uint32_t bytes = 0;
  int32_t tag = 0;
  uint32_t moved = 0;
  int code = 0;
};

struct Header {
  uint32_t bytes;
  int32_t tag;
};

struct Comm {
  Comm(Socket connected, bool sending) : socket(std::move(connected)), sends(sending) {
    worker = std::thread([this] { work(); });
  }
  ~Comm() {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stop = true;
    }
    wake.notify_one();
    // What was written before still arrives; a worker in mid-message is freed.
    shutdown(socket.fd(), SHUT_RDWR);
    worker.join();
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      wake.wait(lock, [this] { return stop || worked < posted; });
      if (stop) return;
      Request& request = requests[worked % kQueue];
      lock.unlock();
      request.code = broken ? kNetRemoteError : sends ? send_one(request) : receive_one(request);
      broken |= request.code != kNetSuccess;
      lock.lock();
      ++worked;
    }
  }

  int send_one(Request& request) {
    const Header header{request.bytes, request.tag};
    request.moved = request.bytes;
    const int more = request.bytes > 0 ? MSG_MORE : 0;
    return socket.write(&header, sizeof header, more) && socket.write(request.data, request.bytes)
               ? kNetSuccess
               : kNetRemoteError;
  }

  int receive_one(Request& request) {
    Header header;
    if (!socket.read(&header, sizeof header)) return kNetRemoteError;
    if (header.tag != request.tag) return REFUSE(kNetInvalidUsage, "tags differ");
    if (header.bytes > request.bytes) {
      return REFUSE(kNetInvalidUsage, "a message is larger than its receive");
    }
    request.moved = header.bytes;
    return socket.read(request.data, header.bytes) ? kNetSuccess : kNetRemoteError;
  }

  Socket socket;
  const bool sends;
  std::set<Region*> regions;
  Request requests[kQueue];
  std::mutex mutex;  // guards the counters; a request belongs to the worker until it is worked
  std::condition_variable wake;
  uint64_t posted = 0;
  uint64_t worked = 0;
  uint64_t tested = 0;  // seen done
  bool stop = false;
  bool broken = false;  // the worker's own
  std::thread worker;
};

// --- The table ----------------------------------------------------------------------------------

int init(NetLogger logger) {
  if (logger == nullptr) return kNetInvalidArgument;
  g_log = logger;
  if (g_initialised) return REFUSE(kNetInternalError, "a second init");
  g_initialised = true;
  g_log(kNetLogInfo, ~0ul, __func__, __LINE__, "refplugin: threads, host memory, loopback");
  return kNetSuccess;
}

int devices(int* count) {
  *count = 1;
  return kNetSuccess;
}

int get_properties(int device, NetPropertiesV7* out) {
  if (device != 0) return REFUSE(kNetInvalidArgument, "no such device");
  *out = {};
  out->name = "lo";
  out->pci_path = nullptr;
  out->guid = 1;
  out->ptr_support = kNetPtrHost;
  out->speed_mbps = 10000;
  out->max_comms = 1024;
  out->max_recvs = 1;
  out->net_device_type = kNetDeviceHost;
  return kNetSuccess;
}

int listen_on(int device, void* handle, void** listen_comm) {
  if (device != 0) return REFUSE(kNetInvalidArgument, "no such device");
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.fd(), generic, length) != 0 || listen(socket.fd(), 128) != 0 ||
      getsockname(socket.fd(), generic, &length) != 0) {
    return REFUSE(kNetSystemError, strerror(errno));
  }
  std::random_device random;
  const uint64_t secret = uint64_t{random()} << 32 | random();
  const Handle content{kMagic, secret, nullptr, ntohs(address.sin_port)};
  memset(handle, 0, kNetHandleBytes);
  memcpy(handle, &content, sizeof content);
  *listen_comm = new Listener{std::move(socket), secret};
  return kNetSuccess;
}

int connect_to(int device, void* handle, void** send_comm, NetDeviceHandle** send_device) {
  if (device != 0) return REFUSE(kNetInvalidArgument, "no such device");
  if (send_device == nullptr || *send_device != nullptr) {
    return REFUSE(kNetInvalidUsage, "device offload is not offered");
  }
  auto* content = static_cast<Handle*>(handle);
  if (content->magic != kMagic) return REFUSE(kNetInvalidUsage, "no handle, or used before");
  if (*send_comm != nullptr) return REFUSE(kNetInvalidUsage, "a comm that is not NULL");
  if (content->self == nullptr) {
    content->self = content;  // the first call connects nothing: the caller has to come again
    return kNetSuccess;
  }
  if (content->self != content) return REFUSE(kNetInvalidUsage, "the handle has moved");
  content->magic = 0;
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(content->port);
  const int one = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const Hello hello{kMagic, content->secret};
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      !socket.write(&hello, sizeof hello)) {
    return REFUSE(kNetSystemError, strerror(errno));
  }
  *send_comm = new Comm(std::move(socket), true);
  return kNetSuccess;
}

int accept_from(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device) {
  auto* listener = static_cast<Listener*>(listen_comm);
  if (recv_device == nullptr || *recv_device != nullptr) {
    return REFUSE(kNetInvalidUsage, "device offload is not offered");
  }
  if (listener->over) return REFUSE(kNetInvalidUsage, "a second accept");
  pollfd ready{listener->socket.fd(), POLLIN, 0};
  if (++listener->turns < 2 || poll(&ready, 1, 0) < 1) return kNetSuccess;
  Socket socket(accept4(listener->socket.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &kHelloPatience, sizeof kHelloPatience);
  Hello hello{};
  if (!socket.read(&hello, sizeof hello) || hello.magic != kMagic ||
      hello.secret != listener->secret) {
    REFUSE(kNetRemoteError, "a stranger called");
    return kNetSuccess;  // the peer may still come
  }
  const timeval for_ever{0, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof for_ever);
  listener->over = true;
  *recv_comm = new Comm(std::move(socket), false);
  return kNetSuccess;
}

int reg_mr(void* pointer, void* data, int size, int type, void** mhandle) {
  if (type != kNetPtrHost) return REFUSE(kNetInvalidArgument, "memory that is not the host's");
  if (size < 0) return REFUSE(kNetInvalidArgument, "a negative size");
  auto* comm = static_cast<Comm*>(pointer);
  auto* region = new Region{static_cast<uint8_t*>(data), static_cast<size_t>(size)};
  comm->regions.insert(region);
  *mhandle = region;
  return kNetSuccess;
}

int dereg_mr(void* pointer, void* mhandle) {
  if (mhandle == nullptr) return kNetSuccess;
  auto* region = static_cast<Region*>(mhandle);
  if (static_cast<Comm*>(pointer)->regions.erase(region) == 0) {
    return REFUSE(kNetInvalidArgument, "deregMr of what is not registered here");
  }
  delete region;
  return kNetSuccess;
}

int post(Comm* comm, bool sends, void* data, int size, int tag, void* mhandle, void** request) {
  if (comm->sends != sends) return REFUSE(kNetInvalidUsage, "a comm of the other direction");
  if (request == nullptr || *request != nullptr) {
    return REFUSE(kNetInvalidUsage, "a request that is not NULL");
  }
  auto* region = static_cast<Region*>(mhandle);
  auto* begin = static_cast<uint8_t*>(data);
  if (comm->regions.count(region) == 0) return REFUSE(kNetInvalidArgument, "no such mhandle");
  if (size < 0 || begin < region->data || begin + size > region->data + region->bytes) {
    return REFUSE(kNetInvalidArgument, "data outside of its region");
  }
  {
    const std::lock_guard<std::mutex> lock(comm->mutex);
    if (comm->posted - comm->tested == kQueue) return kNetSuccess;  // busy
    Request& slot = comm->requests[comm->posted++ % kQueue];
    slot = {comm, begin, static_cast<uint32_t>(size), tag, 0, kNetSuccess};
    *request = &slot;
  }
  comm->wake.notify_one();
  return kNetSuccess;
}

int isend(void* comm, void* data, int size, int tag, void* mhandle, void** request) {
  return post(static_cast<Comm*>(comm), true, data, size, tag, mhandle, request);
}

int irecv(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  if (n != 1) return REFUSE(kNetInvalidArgument, "maxRecvs is 1");
  return post(static_cast<Comm*>(comm), false, data[0], sizes[0], tags[0], mhandles[0], request);
}

int iflush(void*, int, void**, int*, void**, void**) {
  return REFUSE(kNetInvalidUsage, "iflush of host memory");
}

int test(void* pointer, int* done, int* sizes) {
  if (pointer == nullptr || done == nullptr) return REFUSE(kNetInvalidArgument, "test of NULL");
  auto* request = static_cast<Request*>(pointer);
  Comm* comm = request->comm;
  const std::lock_guard<std::mutex> lock(comm->mutex);
  if (comm->tested == comm->posted || request != &comm->requests[comm->tested % kQueue]) {
    return REFUSE(kNetInternalError, "test of a request that is not the oldest, or was done");
  }
  *done = comm->worked > comm->tested ? 1 : 0;
  if (*done == 0) return kNetSuccess;
  if (request->code != kNetSuccess) return request->code;
  if (sizes != nullptr) sizes[0] = static_cast<int>(request->moved);
  ++comm->tested;
  return kNetSuccess;
}

int close_comm(void* pointer) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm != nullptr && !comm->regions.empty()) REFUSE(0, "closed with memory registered");
  delete comm;
  return kNetSuccess;
}

int close_listen(void* listen_comm) {
  delete static_cast<Listener*>(listen_comm);
  return kNetSuccess;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const NetTableV7 ncclNetPlugin_v7 = {
    "refplugin", init,       devices,      get_properties, listen_on, connect_to, accept_from,
    reg_mr,      nullptr,    dereg_mr,     isend,          irecv,     iflush,     test,
    close_comm,  close_comm, close_listen, nullptr,        nullptr,
};
