// Contexts, devices and their properties.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fault.h"
#include "gpu_memory.h"
#include "messages.h"

extern "C" __attribute__((visibility("default"))) NetTableV11 ncclNetPlugin_v11;

namespace {

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

}  // namespace
