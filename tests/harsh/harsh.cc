// softtcpx with habits that the contract gives TCPX, or allows, and softtcpx has not: a net plugin
// that passes every call on to it. HARSH_INNER is softtcpx's file, HARSH_HABITS a list with commas:
//
//   named-tcpx       its table has TCPX's name
//   exits-at-init    init calls exit(1), as TCPX does without a GPU
//   exits-in-batch   so does a send in the middle, as after a truncated control message
//   fails-in-batch   that send is refused, for a reason that is in the log only
//   keeps-counts     an empty receive leaves in its slot the count of the receive 16 before
//   one-set-up       listen, connect, accept and regMr of two threads at once are refused
//   slow-accept      accept of a comm that is there waits for the file HARSH_GATE
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "net/abi_v7.h"

namespace {

constexpr int kSendInBatch = 20;
constexpr int kGateLooks = 20'000;  // of a millisecond

const NetTableV7& inner() {
  static const NetTableV7* const table = [] {
    void* library = dlopen(getenv("HARSH_INNER"), RTLD_NOW | RTLD_LOCAL);
    void* found = library != nullptr ? dlsym(library, "ncclNetPlugin_v7") : nullptr;
    if (found == nullptr) abort();
    return static_cast<const NetTableV7*>(found);
  }();
  return *table;
}

bool has_habit(const char* habit) {
  const char* const all = getenv("HARSH_HABITS");
  return all != nullptr && strstr((std::string(",") + all + ",").c_str(),
                                  (std::string(",") + habit + ",").c_str()) != nullptr;
}

NetLogger g_log = nullptr;
void warn(const char* function, const char* text) {
  g_log(kNetLogWarn, ~0ul, function, __LINE__, "harsh: %s", text);
}

// --- Set-up
// ---------------------------------------------------------------------------------------

std::atomic<int> g_in_setup{0};

// Long enough that two threads that do not wait for each other meet.
template <typename Call>
int set_up(const Call& call) {
  static const bool alone = has_habit("one-set-up");
  if (!alone) return call();
  const bool first = g_in_setup.fetch_add(1) == 0;
  usleep(2000);  // see above: a call of its own is too short to be met
  const int code = first ? call() : kNetInternalError;
  if (!first) warn("set_up", "two threads at once");
  g_in_setup.fetch_sub(1);
  return code;
}

int init(NetLogger log) {
  g_log = log;
  if (has_habit("exits-at-init")) {
    warn("init", "no GPU here");
    exit(1);
  }
  return inner().init(log);
}
int devices(int* count) { return inner().devices(count); }
int properties(int device, NetPropertiesV7* out) { return inner().get_properties(device, out); }
int listen(int device, void* handle, void** comm) {
  return set_up([=] { return inner().listen(device, handle, comm); });
}
int connect(int device, void* handle, void** comm, NetDeviceHandle** device_handle) {
  return set_up([=] { return inner().connect(device, handle, comm, device_handle); });
}

struct Receives {
  NetUnpackQueue* queue = nullptr;
  uint64_t posted = 0;
  uint64_t counts[kNetUnpackSlots] = {};
};
struct Receive {
  Receives* comm;
  uint64_t slot;
  int bytes;
};
std::mutex g_mutex;
std::map<void*, Receives> g_comms;
std::map<void*, Receive> g_requests;

// It says by another file that it waits.
bool gate_opens() {
  const std::string gate = getenv("HARSH_GATE");
  fclose(fopen((gate + ".waits").c_str(), "w"));
  for (int looks = 0; looks < kGateLooks; ++looks) {
    if (access(gate.c_str(), F_OK) == 0) return true;
    usleep(1000);  // between two looks: nobody tells that a file is there
  }
  return false;
}

int accept(void* listener, void** comm, NetDeviceHandle** device_handle) {
  return set_up([=] {
    const int code = inner().accept(listener, comm, device_handle);
    if (code != kNetSuccess || *comm == nullptr) return code;
    if (has_habit("slow-accept") && !gate_opens()) return static_cast<int>(kNetTimeout);
    if (*device_handle != nullptr) {
      const std::lock_guard<std::mutex> lock(g_mutex);
      g_comms[*comm].queue = static_cast<NetUnpackDevice*>((*device_handle)->handle)->meta;
    }
    return code;
  });
}
int reg_mr(void* comm, void* data, int bytes, int type, void** mhandle) {
  return set_up([=] { return inner().reg_mr(comm, data, bytes, type, mhandle); });
}
int dereg_mr(void* comm, void* mhandle) { return inner().dereg_mr(comm, mhandle); }

// --- Traffic
// --------------------------------------------------------------------------------------

int isend(void* comm, void* data, int bytes, int tag, void* mhandle, void** request) {
  static const bool exits = has_habit("exits-in-batch"), fails = has_habit("fails-in-batch");
  static std::atomic<int> sends{0};
  if ((exits || fails) && ++sends == kSendInBatch) {
    warn("isend", "a truncated control message");
    if (exits) exit(1);
    return kNetInternalError;
  }
  return inner().isend(comm, data, bytes, tag, mhandle, request);
}

int irecv(void* comm, int n, void** data, int* bytes, int* tags, void** mhandles, void** request) {
  static const bool keeps = has_habit("keeps-counts");
  const int code = inner().irecv(comm, n, data, bytes, tags, mhandles, request);
  if (keeps && code == kNetSuccess && *request != nullptr) {
    const std::lock_guard<std::mutex> lock(g_mutex);
    Receives& receives = g_comms[comm];
    g_requests[*request] = {&receives, receives.posted++ % kNetUnpackSlots, bytes[0]};
  }
  return code;
}

int iflush(void* comm, int n, void** data, int* bytes, void** mhandles, void** request) {
  return inner().iflush(comm, n, data, bytes, mhandles, request);
}

int test(void* request, int* done, int* bytes) {
  const int code = inner().test(request, done, bytes);
  if (code != kNetSuccess || !*done) return code;
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto found = g_requests.find(request);
  if (found == g_requests.end() || found->second.comm->queue == nullptr) return code;
  const Receive& receive = found->second;
  uint64_t& before = receive.comm->counts[receive.slot];
  uint64_t& count = receive.comm->queue->cnt[receive.slot];
  if (receive.bytes == 0) {
    count = before;
  } else {
    before = count;
  }
  g_requests.erase(found);
  return code;
}

int close_send(void* comm) { return inner().close_send(comm); }
int close_recv(void* comm) { return inner().close_recv(comm); }
int close_listen(void* comm) { return inner().close_listen(comm); }
int get_device_mr(void* comm, void* mhandle, void** out) {
  return inner().get_device_mr(comm, mhandle, out);
}
int irecv_consumed(void* comm, int n, void* request) {
  return inner().irecv_consumed(comm, n, request);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern NetTableV7 ncclNetPlugin_v7;
NetTableV7 ncclNetPlugin_v7 = {
    "softtcpx_harsh", init,       devices,      properties,    listen,         connect, accept,
    reg_mr,           nullptr,    dereg_mr,     isend,         irecv,          iflush,  test,
    close_send,       close_recv, close_listen, get_device_mr, irecv_consumed,
};
}

__attribute__((constructor)) static void take_name() {
  if (has_habit("named-tcpx")) ncclNetPlugin_v7.name = "GPUDirectTCPX_v7";
}
