// softtcpx with one thing wrong, by ODD_MODE, as plugins of others have it before the first
// connection. ODD_REAL is the path of softtcpx.
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "net/abi_v7.h"

extern "C" __attribute__((visibility("default"))) NetTableV7 ncclNetPlugin_v7;
NetTableV7 ncclNetPlugin_v7;

namespace {

int (*g_properties)(int, NetPropertiesV7*);

[[noreturn]] void for_ever() {
  while (true) asm volatile("");
}
// Whether this is the process of its own in which a plugin is loaded first.
bool is_tried() {
  std::ifstream file("/proc/self/cmdline");
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return all.find("plugin.trial") != std::string::npos;
}
int init_spins(NetLogger) { for_ever(); }
int devices_spin(int*) { for_ever(); }
int properties_spin(int, NetPropertiesV7*) { for_ever(); }
int init_sleeps(NetLogger) {
  while (true) pause();
}
int init_aborts(NetLogger) { abort(); }
int init_crashes(NetLogger) {
  raise(SIGSEGV);
  return 0;
}
int init_exits(NetLogger) { exit(0); }
int init_is_terminated(NetLogger) {
  raise(SIGKILL);
  return 0;
}
int properties_fail(int, NetPropertiesV7*) { return kNetSystemError; }
int properties_crash(int, NetPropertiesV7*) { abort(); }
char g_name[] = "od\xff\x01\nd";
int properties_binary(int device, NetPropertiesV7* out) {
  const int code = g_properties(device, out);
  out->name = g_name;
  out->pci_path = g_name;
  return code;
}
char g_long[5000];

__attribute__((constructor)) void choose() {
  const char* real = getenv("ODD_REAL");
  const char* asked = getenv("ODD_MODE");
  void* library = dlopen(real != nullptr ? real : "", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  NetTableV7& t = ncclNetPlugin_v7;
  memcpy(&t, dlsym(library, "ncclNetPlugin_v7"), sizeof(t));
  t.name = "odd";
  g_properties = t.get_properties;
  std::string mode = asked != nullptr ? asked : "";
  if (getenv("ODD_IN_RANKS") != nullptr && is_tried()) mode = "";
  if (mode == "load spins") for_ever();
  if (mode == "load aborts") abort();
  if (mode == "init spins") t.init = init_spins;
  if (mode == "init sleeps") t.init = init_sleeps;
  if (mode == "init aborts") t.init = init_aborts;
  if (mode == "init crashes") t.init = init_crashes;
  if (mode == "init exits") t.init = init_exits;
  if (mode == "init is killed") t.init = init_is_terminated;
  if (mode == "devices spin") t.devices = devices_spin;
  if (mode == "properties spin") t.get_properties = properties_spin;
  if (mode == "properties fail") t.get_properties = properties_fail;
  if (mode == "properties crash") t.get_properties = properties_crash;
  if (mode == "binary device") t.get_properties = properties_binary;
  if (mode == "binary name") t.name = g_name;
  if (mode == "long name") t.name = static_cast<char*>(memset(g_long, 'n', sizeof(g_long) - 1));
  if (mode == "no name") t.name = nullptr;
  if (mode == "no init") t.init = nullptr;
  if (mode == "no isend") t.isend = nullptr;
  if (mode == "no test, close_recv") t.test = nullptr, t.close_recv = nullptr;
  if (mode == "no options") {
    t.reg_mr_dma_buf = nullptr;
    t.get_device_mr = nullptr;
    t.irecv_consumed = nullptr;
    t.iflush = nullptr;
  }
}

}  // namespace
