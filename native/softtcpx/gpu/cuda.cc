#include "softtcpx/gpu/cuda.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>

namespace softtcpx {
namespace {

// Of the driver's interface, as it is published.
constexpr int kAttributeMemoryType = 2, kMemoryTypeDevice = 2;
constexpr int kAttributeDeviceOrdinal = 9;
constexpr int kInvalidValue = 1, kNotInitialized = 3;
constexpr int kCaptureRelaxed = 2;

template <class Function>
void find(void* library, const char* name, Function*& function, bool* all) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  *all = *all && function != nullptr;
}

int is_driver(dl_phdr_info* info, size_t, void*) {
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  const char* const name = slash != nullptr ? slash + 1 : info->dlpi_name;
  return std::strncmp(name, "libcuda.so", 10) == 0 ? 1 : 0;
}

std::unique_ptr<CudaDriver> find_driver() {
  // First a look at what is loaded: where it is not, dlopen would search the disk every time.
  if (::dl_iterate_phdr(is_driver, nullptr) == 0) return nullptr;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto driver = std::make_unique<CudaDriver>();
  bool all = true;
  find(library, "cuCtxGetCurrent", driver->ctx_get_current, &all);
  find(library, "cuCtxPushCurrent_v2", driver->ctx_push_current, &all);
  find(library, "cuCtxPopCurrent_v2", driver->ctx_pop_current, &all);
  find(library, "cuCtxGetDevice", driver->ctx_get_device, &all);
  find(library, "cuThreadExchangeStreamCaptureMode", driver->thread_exchange_stream_capture_mode,
       &all);
  find(library, "cuPointerGetAttribute", driver->pointer_get_attribute, &all);
  find(library, "cuMemGetAddressRange_v2", driver->mem_get_address_range, &all);
  find(library, "cuMemHostRegister_v2", driver->mem_host_register, &all);
  find(library, "cuMemHostUnregister", driver->mem_host_unregister, &all);
  find(library, "cuMemHostGetDevicePointer_v2", driver->mem_host_get_device_pointer, &all);
  find(library, "cuMemAlloc_v2", driver->mem_alloc, &all);
  find(library, "cuMemFree_v2", driver->mem_free, &all);
  find(library, "cuMemcpyHtoD_v2", driver->memcpy_htod, &all);
  find(library, "cuMemcpyHtoDAsync_v2", driver->memcpy_htod_async, &all);
  find(library, "cuMemcpyDtoHAsync_v2", driver->memcpy_dtoh_async, &all);
  find(library, "cuStreamCreate", driver->stream_create, &all);
  find(library, "cuStreamDestroy_v2", driver->stream_destroy, &all);
  find(library, "cuStreamQuery", driver->stream_query, &all);
  find(library, "cuStreamWriteValue32_v2", driver->stream_write_value32, &all);
  find(library, "cuGetErrorName", driver->get_error_name, &all);
  bool optional = true;
  find(library, "cuMemcpyBatchAsync_v2", driver->memcpy_batch_async, &optional);
  find(library, "cuMemGetHandleForAddressRange", driver->mem_get_handle, &optional);
  bool kernels = true;
  find(library, "cuModuleLoadData", driver->module_load_data, &kernels);
  find(library, "cuModuleGetFunction", driver->module_get_function, &kernels);
  find(library, "cuLaunchKernel", driver->launch_kernel, &kernels);
  if (!kernels) driver->launch_kernel = nullptr;
  return all ? std::move(driver) : nullptr;
}

// Looked for until it is there: a caller may load it after us.
const CudaDriver* driver() {
  static std::mutex mutex;
  static const CudaDriver* found = nullptr;  // for good: threads may outlive static objects
  const std::lock_guard<std::mutex> lock(mutex);
  if (found == nullptr) found = find_driver().release();
  return found;
}

}  // namespace

const char* cuda_error_name(const CudaDriver& driver, int code) {
  const char* name = nullptr;
  return driver.get_error_name(code, &name) == 0 && name != nullptr ? name : "unknown CUDA error";
}

CudaError::CudaError(const CudaDriver& driver, const char* call, int code)
    : std::runtime_error(std::string(call) + ": " + cuda_error_name(driver, code)) {}

bool exports_dma_buf() { return driver() != nullptr && driver()->mem_get_handle != nullptr; }

Gpu current_gpu() {
  Gpu gpu;
  gpu.driver = driver();
  // Before anybody has initialised the driver it says so by an error.
  if (gpu.driver == nullptr || gpu.driver->ctx_get_current(&gpu.context) != 0)
    gpu.context = nullptr;
  if (gpu) check_cuda(*gpu.driver, "cuCtxGetDevice", gpu.driver->ctx_get_device(&gpu.ordinal));
  return gpu;
}

CurrentContext::CurrentContext(const Gpu& gpu) : capture_mode_(kCaptureRelaxed) {
  if (!gpu) return;
  CudaContext current = nullptr;
  code_ = gpu.driver->ctx_get_current(&current);
  const bool push = code_ == 0 && current != gpu.context;
  if (push) code_ = gpu.driver->ctx_push_current(gpu.context);
  if (code_ != 0) return;
  pushed_ = push;
  driver_ = gpu.driver;
  driver_->thread_exchange_stream_capture_mode(&capture_mode_);
}

CurrentContext::~CurrentContext() {
  if (driver_ == nullptr) return;
  driver_->thread_exchange_stream_capture_mode(&capture_mode_);
  CudaContext ours;
  if (pushed_) driver_->ctx_pop_current(&ours);
}

bool is_gpu_memory(const CudaDriver& driver, const void* data) {
  unsigned type = 0;
  const int code = driver.pointer_get_attribute(&type, kAttributeMemoryType,
                                                reinterpret_cast<CudaAddress>(data));
  if (code == kInvalidValue || code == kNotInitialized) return false;
  check_cuda(driver, "cuPointerGetAttribute", code);
  return type == kMemoryTypeDevice;
}

Residence residence(const Gpu& gpu, const void* data, uint64_t bytes) {
  const auto address = reinterpret_cast<CudaAddress>(data);
  int ordinal = -1;
  check_cuda(*gpu.driver, "cuPointerGetAttribute",
             gpu.driver->pointer_get_attribute(&ordinal, kAttributeDeviceOrdinal, address));
  if (ordinal != gpu.ordinal) return Residence::kOtherGpu;
  CudaAddress base = 0;
  size_t length = 0;
  check_cuda(*gpu.driver, "cuMemGetAddressRange",
             gpu.driver->mem_get_address_range(&base, &length, address));
  return bytes <= length - (address - base) ? Residence::kThisGpu : Residence::kSeveralAllocations;
}

}  // namespace softtcpx
