#include "cuda/driver.h"

#include <dlfcn.h>

#include <initializer_list>

namespace tcpx {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

// Newer drivers have newer forms beside the old: the first name that is there.
template <typename Function>
void find(void* library, Function** function, std::initializer_list<const char*> names) {
  *function = nullptr;
  for (const char* name : names) {
    *function = reinterpret_cast<Function*>(dlsym(library, name));
    if (*function != nullptr) return;
  }
  throw CudaUnavailable(std::string(kLibrary) + " has no " + *names.begin() +
                        ": the NVIDIA driver is too old, or this file not whole");
}

CudaCalls load() {
  // Local: a plugin brings its own view of the driver.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw CudaUnavailable(std::string("no NVIDIA driver: ") + dlerror());
  }
  CudaCalls c;
  find(library, &c.init, {"cuInit"});
  find(library, &c.driver_version, {"cuDriverGetVersion"});
  find(library, &c.error_name, {"cuGetErrorName"});
  find(library, &c.device_count, {"cuDeviceGetCount"});
  find(library, &c.device_get, {"cuDeviceGet"});
  find(library, &c.device_name, {"cuDeviceGetName"});
  find(library, &c.device_uuid, {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"});
  find(library, &c.device_pci_bus_id, {"cuDeviceGetPCIBusId"});
  find(library, &c.device_total_memory, {"cuDeviceTotalMem_v2"});
  find(library, &c.device_attribute, {"cuDeviceGetAttribute"});
  find(library, &c.primary_retain, {"cuDevicePrimaryCtxRetain"});
  find(library, &c.set_current, {"cuCtxSetCurrent"});
  find(library, &c.get_current, {"cuCtxGetCurrent"});
  find(library, &c.mem_alloc, {"cuMemAlloc_v2"});
  find(library, &c.mem_free, {"cuMemFree_v2"});
  find(library, &c.mem_range, {"cuMemGetAddressRange_v2"});
  find(library, &c.pointer_attributes, {"cuPointerGetAttributes"});
  find(library, &c.host_alloc, {"cuMemHostAlloc"});
  find(library, &c.host_free, {"cuMemFreeHost"});
  find(library, &c.host_register, {"cuMemHostRegister_v2"});
  find(library, &c.host_unregister, {"cuMemHostUnregister"});
  find(library, &c.copy_async, {"cuMemcpyAsync"});
  find(library, &c.set8_async, {"cuMemsetD8Async"});
  find(library, &c.stream_create, {"cuStreamCreate"});
  find(library, &c.stream_destroy, {"cuStreamDestroy_v2"});
  find(library, &c.stream_wait, {"cuStreamSynchronize"});
  find(library, &c.stream_query, {"cuStreamQuery"});
  find(library, &c.event_create, {"cuEventCreate"});
  find(library, &c.event_destroy, {"cuEventDestroy_v2"});
  find(library, &c.event_record, {"cuEventRecord"});
  find(library, &c.event_wait, {"cuEventSynchronize"});
  find(library, &c.event_elapsed, {"cuEventElapsedTime_v2", "cuEventElapsedTime"});
  c.range_handle =
      reinterpret_cast<decltype(c.range_handle)>(dlsym(library, "cuMemGetHandleForAddressRange"));
  find(library, &c.module_load, {"cuModuleLoadData"});
  find(library, &c.module_function, {"cuModuleGetFunction"});
  find(library, &c.launch, {"cuLaunchKernel"});

  const auto refused = [&](const char* call, int code) {
    const char* name = nullptr;
    c.error_name(code, &name);
    throw CudaUnavailable(std::string("the NVIDIA driver finds no GPU: ") + call + ": " +
                          (name != nullptr ? name : "unknown error"));
  };
  if (const int code = c.init(0)) refused("cuInit", code);
  int count = 0;
  if (const int code = c.device_count(&count)) refused("cuDeviceGetCount", code);
  if (count == 0) throw CudaUnavailable("the NVIDIA driver finds no GPU");
  return c;
}

}  // namespace

const CudaCalls& cuda() {
  static const CudaCalls calls = load();  // a reason not to be there is looked for again
  return calls;
}

std::string cuda_error_name(int code) {
  const char* name = nullptr;
  cuda().error_name(code, &name);
  return name != nullptr ? name : "unknown error";
}

void check_cuda(int code, const char* call, const std::string& what) {
  if (code != 0) throw CudaError(call, code, cuda_error_name(code), what);
}

}  // namespace tcpx
