// Devices, their primary contexts, and which of these a thread has current.
#include <strings.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fakecuda {
namespace {

thread_local std::vector<Context*> stack;

// The numbers that CUDA_VISIBLE_DEVICES leaves, in its order.
const std::vector<int>& physical() {
  static const std::vector<int> devices = [] {
    const char* count = getenv("FAKECUDA_DEVICES");
    const int n = count != nullptr ? atoi(count) : 2;
    std::vector<int> all;
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) {
      for (int i = 0; i < n; ++i) all.push_back(i);
      return all;
    }
    for (const char* at = visible; *at != '\0';) {
      char* end = nullptr;
      const long device = strtol(at, &end, 10);
      if (end == at || device < 0 || device >= n) break;  // what follows an invalid one is hidden
      all.push_back(static_cast<int>(device));
      at = *end == ',' ? end + 1 : end;
    }
    return all;
  }();
  return devices;
}

CUresult injected(const std::string& call, uint64_t nth) {
  const char* fail = getenv("FAKECUDA_FAIL");
  if (fail == nullptr) return kSuccess;
  const std::string text = fail;
  const size_t first = text.find(':');
  if (first == std::string::npos || text.substr(0, first) != call) return kSuccess;
  const size_t second = text.find(':', first + 1);
  if (strtoull(text.c_str() + first + 1, nullptr, 10) != nth) return kSuccess;
  return second == std::string::npos ? CUresult{kUnknown} : atoi(text.c_str() + second + 1);
}

// cuMemAlloc_v2 is cuMemAlloc to whoever counts or fails calls.
std::string plain_name(const char* call) {
  std::string name = call;
  if (name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v') {
    name.resize(name.size() - 3);
  }
  return name;
}

bool no_such(CUdevice device) { return device < 0 || device >= visible_devices(); }

// The bus of a device; 0x10 is that of physical device 0.
int bus_of(CUdevice device) { return 0x10 + physical()[device]; }

void print_pci(char* id, size_t room, CUdevice device) {
  snprintf(id, room, "0000:%02X:00.0", bus_of(device));
}

// FAKECUDA_CAPABILITY, as "80".
int capability() {
  const char* chosen = getenv("FAKECUDA_CAPABILITY");
  return chosen != nullptr ? atoi(chosen) : 90;
}

constexpr int kMultiprocessors = 4;  // few, so that small work has several rounds a block

}  // namespace

Driver& driver() {
  static Driver* const all = new Driver;  // streams may outlive static destructors
  return *all;
}

bool exports_dma_bufs() {
  const char* chosen = getenv("FAKECUDA_DMA_BUF");
  return chosen == nullptr || atoi(chosen) != 0;
}

int visible_devices() { return static_cast<int>(physical().size()); }
Context* current() { return stack.empty() ? nullptr : stack.back(); }

CUresult enter(const char* call) {
  Driver& all = driver();
  const std::string name = plain_name(call);
  if (const CUresult code = injected(name, ++all.calls[name])) return code;
  return all.initialized || name == "cuInit" ? kSuccess : kNotInitialized;
}

CUresult enter_context(const char* call, Context** context) {
  if (const CUresult code = enter(call)) return code;
  *context = current();
  if (*context == nullptr || (*context)->retained == 0) return kInvalidContext;
  return (*context)->error;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_API uint64_t fakecuda_calls(const char* call) {
  const std::lock_guard<std::recursive_mutex> lock(driver().mutex);
  return driver().calls[call];
}

FAKECUDA_API CUresult cuInit(unsigned) {
  ENTER();
  if (visible_devices() == 0) return kNoDevice;
  driver().initialized = true;
  return kSuccess;
}

FAKECUDA_API CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

FAKECUDA_API CUresult cuDeviceGetCount(int* count) {
  ENTER();
  *count = visible_devices();
  return kSuccess;
}

FAKECUDA_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER();
  if (no_such(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

FAKECUDA_API CUresult cuDeviceGetName(char* name, int room, CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  snprintf(name, room, "Fake GPU");
  return kSuccess;
}

FAKECUDA_API CUresult cuDeviceGetUuid_v2(void* uuid, CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  memset(uuid, 0xFA, 16);
  static_cast<uint8_t*>(uuid)[15] = static_cast<uint8_t>(physical()[device]);
  return kSuccess;
}
FAKECUDA_API CUresult cuDeviceGetUuid(void* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

FAKECUDA_API CUresult cuDeviceGetPCIBusId(char* id, int room, CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  print_pci(id, room, device);
  return kSuccess;
}

FAKECUDA_API CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* wanted) {
  ENTER();
  for (CUdevice candidate = 0; candidate < visible_devices(); ++candidate) {
    char id[16];
    print_pci(id, sizeof(id), candidate);
    if (strcasecmp(id, wanted) != 0) continue;
    *device = candidate;
    return kSuccess;
  }
  return kInvalidDevice;
}

FAKECUDA_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  *bytes = Arena::kBytes;
  return kSuccess;
}

FAKECUDA_API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  switch (attribute) {
    case 1:  // most threads a block
      *value = 1024;
      return kSuccess;
    case 10:  // warp size
      *value = 32;
      return kSuccess;
    case 16:
      *value = kMultiprocessors;
      return kSuccess;
    case 19:  // can map host memory
    case 41:  // unified addressing
    case 91:  // a host register's device pointer is its address
      *value = 1;
      return kSuccess;
    case 33:  // PCI bus, device, domain
      *value = bus_of(device);
      return kSuccess;
    case 34:
    case 50:
      *value = 0;
      return kSuccess;
    case 39:  // most threads a multiprocessor
      *value = 2048;
      return kSuccess;
    case 75:  // compute capability
      *value = capability() / 10;
      return kSuccess;
    case 76:
      *value = capability() % 10;
      return kSuccess;
    case 124:  // exports dma-bufs
      *value = exports_dma_bufs();
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

FAKECUDA_API CUresult cuDevicePrimaryCtxRetain(Context** context, CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  Context& primary = driver().contexts[device];
  primary.device = device;
  if (primary.retained++ == 0) primary.legacy = std::make_shared<Stream>(primary, true, true);
  *context = &primary;
  return kSuccess;
}

FAKECUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  Context& primary = driver().contexts[device];
  if (primary.retained == 0) return kInvalidContext;
  if (--primary.retained > 0) return kSuccess;
  auto streams = std::move(primary.streams);
  auto legacy = std::move(primary.legacy);
  lock.unlock();
  streams.clear();
  legacy.reset();
  return kSuccess;
}

FAKECUDA_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  ENTER();
  if (no_such(device)) return kInvalidDevice;
  *flags = 0;
  *active = driver().contexts[device].retained > 0;
  return kSuccess;
}

FAKECUDA_API CUresult cuCtxSetCurrent(Context* context) {
  ENTER();
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return kSuccess;
}

FAKECUDA_API CUresult cuCtxGetCurrent(Context** context) {
  ENTER();
  *context = current();
  return kSuccess;
}

FAKECUDA_API CUresult cuCtxPushCurrent_v2(Context* context) {
  ENTER();
  if (context == nullptr) return kInvalidContext;
  stack.push_back(context);
  return kSuccess;
}

FAKECUDA_API CUresult cuCtxPopCurrent_v2(Context** context) {
  ENTER();
  if (stack.empty()) return kInvalidContext;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return kSuccess;
}

FAKECUDA_API CUresult cuCtxGetDevice(CUdevice* device) {
  ENTER_CONTEXT();
  *device = context->device;
  return kSuccess;
}

FAKECUDA_API CUresult cuCtxSynchronize() {
  ENTER_CONTEXT();
  const auto streams = streams_of(context, false);
  lock.unlock();
  for (const auto& stream : streams) stream->wait();
  return context->error;
}
