// A net plugin of v11 that keeps the contract, but for one fault of FAULT: for each clause of
// `tcpx-mpi conform` there is one that breaks it and no other.
//
// Loopback, host memory, two devices and what is made of them, 16 requests a comm, groups of 4
// receives. Nothing moves but in calls. Where it says that it unpacks, accept fills a device block,
// which no message in host memory needs. With FAULTY_MEMORY=cuda it takes memory of GPUs, too, by
// address and as dma-bufs, and puts what it receives in place by copies of the driver.
//
// Here are registration, requests and the table; the headers have the rest, each one thing.
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "connections.h"
#include "devices.h"
#include "fault.h"
#include "gpu_memory.h"
#include "messages.h"
#include "net/abi_v11.h"

namespace {

constexpr size_t kQueue = 16;

// --- Registration -------------------------------------------------------------------------------

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
