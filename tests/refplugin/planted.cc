// softtcpx with a fault planted in one call, for tests of how runs end: every other call is passed
// on. It has finalize in its table of v11 alone. PLANT_REAL is the path of softtcpx, and
//
//   PLANT_CALL   which call, in NCCL's spelling: isend; "load" is the constructor of the
//                library, "unload" its destructor
//   PLANT_AT     from the how many-th on, 1 by default
//   PLANT_DO     hang, spin, throw, exit, leave (_exit(3)), abort, error, stop (SIGSTOP to itself),
//   kill, term,
//                memory (no more of it than there is), wait (until there is PLANT_WAIT.go),
//                recurse (until the stack is full), child exits, child aborts (which is forked
//                once, and waited for)
//   PLANT_WAIT   PLANT_WAIT.at is made when the fault comes
//   PLANT_RANK   of which rank alone, by the launcher's number; all by default
//   PLANT_SAYS   what it warns of before
//   PLANT_IN_TRIAL  also in the process of its own in which a plugin is loaded first
//
// Calls of all threads count together.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>

#include "net/abi_v11.h"
#include "net/abi_v7.h"

namespace {

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

NetLogger g_log = nullptr;
std::atomic<long> g_calls{0};
long g_at = 1;

// What is planted; made in the constructor below, before globals of C++ are.
const std::string& what() {
  static const std::string found = variable("PLANT_DO");
  return found;
}

void tell_that_it_comes() {
  const std::string path = variable("PLANT_WAIT");
  if (!path.empty()) close(open((path + ".at").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

void wait_to_be_let_go() {
  while (access((variable("PLANT_WAIT") + ".go").c_str(), F_OK) != 0) usleep(2000);
}

void take_no_more_memory() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(pages) * sysconf(_SC_PAGESIZE);
  setrlimit(RLIMIT_AS, &limit);
}

int recurse(volatile int depth) {
  volatile char room[4096];
  room[0] = static_cast<char>(depth);
  return depth < 1 << 30 ? recurse(depth + 1) + room[0] : 0;
}

void have_a_child(bool exits) {
  static std::atomic<bool> had{false};
  if (had.exchange(true)) return;
  const pid_t child = fork();
  if (child == 0 && exits) exit(9);
  if (child == 0) abort();
  waitpid(child, nullptr, 0);
}

int act(const char* call) {
  tell_that_it_comes();
  const std::string says = variable("PLANT_SAYS");
  if (g_log != nullptr && !says.empty()) g_log(kNetLogWarn, ~0ul, call, 1, "%s", says.c_str());
  if (what() == "hang") {
    while (true) pause();
  }
  if (what() == "spin") {
    while (true) asm volatile("");
  }
  if (what() == "throw") throw 42;
  if (what() == "exit") exit(0);
  if (what() == "leave") _exit(3);
  if (what() == "abort") abort();
  if (what() == "recurse") recurse(0);
  if (what() == "stop") raise(SIGSTOP);
  if (what() == "kill") raise(SIGKILL);
  if (what() == "term") kill(getpid(), SIGTERM);
  if (what() == "wait") wait_to_be_let_go();
  if (what().rfind("child ", 0) == 0) have_a_child(what() == "child exits");
  if (what() == "memory") take_no_more_memory();
  return what() == "error" ? kNetInternalError : kNetSuccess;
}

// The entry of a table: its function with the plant before it.
template <typename Table, auto Entry>
struct Planted;
template <typename Table, typename... A, int (*Table::*Entry)(A...)>
struct Planted<Table, Entry> {
  static inline int (*real)(A...) = nullptr;
  static inline const char* name = "";
  static int call(A... arguments) {
    if (++g_calls >= g_at) {
      if (const int code = act(name); code != kNetSuccess) return code;
    }
    return real(arguments...);
  }
  static void plant(Table& table, const char* asked, const char* name_of_it) {
    if (strcmp(asked, name_of_it) != 0) return;
    name = name_of_it;
    real = table.*Entry;
    table.*Entry = call;
  }
};

// The logger that init hands over.
template <typename Table, auto Entry>
struct Heard;
template <typename Table, typename... A, int (*Table::*Entry)(A...)>
struct Heard<Table, Entry> {
  static inline int (*real)(A...) = nullptr;
  static void keep(NetLogger log) { g_log = log; }
  template <typename T>
  static void keep(T) {}
  static int call(A... arguments) {
    (keep(arguments), ...);
    return real(arguments...);
  }
};

template <typename Table>
void take(Table& table, const std::string& real, const char* symbol, const char* call) {
  void* library = dlopen(real.c_str(), RTLD_NOW | RTLD_LOCAL);
  const void* its = library != nullptr ? dlsym(library, symbol) : nullptr;
  if (its == nullptr) return;
  memcpy(&table, its, sizeof(table));
  table.name = "planted";
  Planted<Table, &Table::init>::plant(table, call, "init");
  Heard<Table, &Table::init>::real = table.init;
  table.init = Heard<Table, &Table::init>::call;
#define PLANT(entry, spelling) Planted<Table, &Table::entry>::plant(table, call, spelling)
  PLANT(devices, "devices");
  PLANT(get_properties, "getProperties");
  PLANT(listen, "listen");
  PLANT(connect, "connect");
  PLANT(accept, "accept");
  PLANT(reg_mr, "regMr");
  PLANT(dereg_mr, "deregMr");
  PLANT(isend, "isend");
  PLANT(irecv, "irecv");
  PLANT(iflush, "iflush");
  PLANT(test, "test");
  PLANT(irecv_consumed, "irecvConsumed");
  PLANT(close_send, "closeSend");
  PLANT(close_recv, "closeRecv");
  PLANT(close_listen, "closeListen");
}

// Whether this is the process of its own in which a plugin is loaded first.
bool is_tried() {
  std::ifstream file("/proc/self/cmdline");
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return all.find("plugin.trial") != std::string::npos;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) NetTableV7 ncclNetPlugin_v7;
__attribute__((visibility("default"))) NetTableV11 ncclNetPlugin_v11;
}

static bool g_unload = false;  // is the call

__attribute__((destructor)) static void unload() {
  if (g_unload) act("unload");
}

__attribute__((constructor)) static void choose() {
  std::string call = variable("PLANT_CALL");
  const std::string rank = variable("PLANT_RANK");
  if (!rank.empty() && rank != variable("OMPI_COMM_WORLD_RANK")) call = "";
  if (variable("PLANT_IN_TRIAL").empty() && is_tried()) call = "";
  what();
  if (const std::string at = variable("PLANT_AT"); !at.empty()) g_at = atol(at.c_str());
  const std::string real = variable("PLANT_REAL");
  if (call == "load") act("load");
  g_unload = call == "unload";
  take(ncclNetPlugin_v7, real, "ncclNetPlugin_v7", call.c_str());
  // softtcpx has a file for each version.
  const std::string newer = real.substr(0, real.rfind(".so")) + "-v11.so";
  take(ncclNetPlugin_v11, newer, "ncclNetPlugin_v11", call.c_str());
  Planted<NetTableV11, &NetTableV11::finalize>::plant(ncclNetPlugin_v11, call.c_str(), "finalize");
}
