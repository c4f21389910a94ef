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

// What getProperties and devices say in place of softtcpx, where a mode names it.
const char* g_text;
int g_number;
bool g_of_pci;
int properties_text(int device, NetPropertiesV7* out) {
  const int code = g_properties(device, out);
  (g_of_pci ? out->pci_path : out->name) = g_text;
  return code;
}
// As a name in the frame of a function that has returned: other bytes at every call.
int properties_change(int device, NetPropertiesV7* out) {
  static char name[16];
  static unsigned calls = 0;
  for (char& byte : name) byte = static_cast<char>(1 + (++calls * 37) % 255);
  name[sizeof(name) - 1] = '\0';
  g_text = name;
  return properties_text(device, out);
}
template <int NetPropertiesV7::*field>
int properties_number(int device, NetPropertiesV7* out) {
  const int code = g_properties(device, out);
  out->*field = g_number;
  return code;
}
int properties_guid(int device, NetPropertiesV7* out) {
  const int code = g_properties(device, out);
  out->guid = ~uint64_t{0};
  return code;
}
int properties_latency(int device, NetPropertiesV7* out) {
  const int code = g_properties(device, out);
  out->latency_us = __builtin_nanf("");
  return code;
}
int devices_number(int* count) {
  *count = g_number;
  return 0;
}

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
  const std::string what = mode.substr(0, mode.find('='));
  const std::string value = mode.find('=') == std::string::npos ? "" : mode.substr(what.size() + 1);
  g_text = strdup(value.c_str());
  g_number = atoi(value.c_str());
  g_of_pci = what.find("pci") != std::string::npos;
  if (value == "NULL") g_text = nullptr;
  if (value == "long") g_text = static_cast<char*>(memset(g_long, 'n', sizeof(g_long) - 1));
  if (what == "device name" || what == "pci path") t.get_properties = properties_text;
  if (mode == "device name changes" || mode == "pci path changes") {
    t.get_properties = properties_change;
  }
  if (what == "devices") t.devices = devices_number;
  if (what == "speed") t.get_properties = properties_number<&NetPropertiesV7::speed_mbps>;
  if (what == "max_comms") t.get_properties = properties_number<&NetPropertiesV7::max_comms>;
  if (what == "max_recvs") t.get_properties = properties_number<&NetPropertiesV7::max_recvs>;
  if (what == "ptr_support") t.get_properties = properties_number<&NetPropertiesV7::ptr_support>;
  if (what == "port") t.get_properties = properties_number<&NetPropertiesV7::port>;
  if (what == "device type") {
    t.get_properties = properties_number<&NetPropertiesV7::net_device_type>;
  }
  if (mode == "guid") t.get_properties = properties_guid;
  if (mode == "latency") t.get_properties = properties_latency;
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
