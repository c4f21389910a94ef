// The CUDA driver, where the process that loaded us uses one.
//
// Nothing is linked and nothing is loaded: a caller with a current context has the driver in the
// process already, and one without has no GPU memory to give us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace softtcpx {

using CudaContext = void*;
using CudaStream = void*;
using CudaAddress = unsigned long long;  // of the device, 64 bits

// Of copies that are begun together: CUmemcpyAttributes, as it is published.
struct CudaCopyAttributes {
  int source_order = 1;  // sources are read when the stream gets there
  int source_hint[2] = {0, 0}, target_hint[2] = {0, 0};
  unsigned flags = 0;
};

// The calls that we make, by the driver's names without their prefix and version. 0 is success.
struct CudaDriver {
  int (*ctx_get_current)(CudaContext* context);
  int (*ctx_push_current)(CudaContext context);
  int (*ctx_pop_current)(CudaContext* context);
  int (*ctx_get_device)(int* ordinal);
  int (*thread_exchange_stream_capture_mode)(int* mode);
  int (*pointer_get_attribute)(void* value, int attribute, CudaAddress address);
  int (*mem_get_address_range)(CudaAddress* base, size_t* bytes, CudaAddress address);
  int (*mem_host_register)(void* memory, size_t bytes, unsigned flags);
  int (*mem_host_unregister)(void* memory);
  int (*mem_host_get_device_pointer)(CudaAddress* address, void* memory, unsigned flags);
  int (*mem_alloc)(CudaAddress* address, size_t bytes);
  int (*mem_free)(CudaAddress address);
  int (*memcpy_htod)(CudaAddress to, const void* from, size_t bytes);
  int (*memcpy_htod_async)(CudaAddress to, const void* from, size_t bytes, CudaStream stream);
  int (*memcpy_dtoh_async)(void* to, CudaAddress from, size_t bytes, CudaStream stream);
  // Null before CUDA 13. In no order among themselves.
  int (*memcpy_batch_async)(CudaAddress* to, CudaAddress* from, size_t* bytes, size_t count,
                            CudaCopyAttributes* attributes, size_t* first_of_each,
                            size_t attribute_count, CudaStream stream);
  // Null before CUDA 11.7.
  int (*mem_get_handle)(void* handle, CudaAddress address, size_t bytes, int type,
                        unsigned long long flags);
  // All three or none.
  int (*module_load_data)(void** module, const void* image);
  int (*module_get_function)(void** function, void* module, const char* name);
  int (*launch_kernel)(void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                       unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                       CudaStream stream, void** arguments, void** extra);
  int (*stream_create)(CudaStream* stream, unsigned flags);
  int (*stream_destroy)(CudaStream stream);
  int (*stream_query)(CudaStream stream);
  int (*stream_write_value32)(CudaStream stream, CudaAddress address, uint32_t value,
                              unsigned flags);
  int (*get_error_name)(int code, const char** name);
};

constexpr int kCudaNotReady = 600;  // of stream_query: not an error

// "CUDA_ERROR_ILLEGAL_ADDRESS", for the log.
const char* cuda_error_name(const CudaDriver& driver, int code);

struct CudaError : std::runtime_error {
  CudaError(const CudaDriver& driver, const char* call, int code);
};
inline void check_cuda(const CudaDriver& driver, const char* call, int code) {
  if (code != 0) throw CudaError(driver, call, code);
}

// A GPU, by the context that was current when a connection or a registration was made.
struct Gpu {
  explicit operator bool() const { return context != nullptr; }

  const CudaDriver* driver = nullptr;
  CudaContext context = nullptr;
  int ordinal = -1;
};
// Whether the driver of this process makes dma-bufs of GPU memory.
bool exports_dma_buf();
// False if there is no driver, or no context is current on this thread. Throws CudaError when
// the current one has failed.
Gpu current_gpu();

// Makes a context current for the calls in a scope; nearly free where it is current already. A
// graph that the process captures meanwhile is not spoilt by them, nor do they fail because of it.
class CurrentContext {
 public:
  explicit CurrentContext(const Gpu& gpu);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  int code() const { return code_; }  // of the driver, when the context is gone

 private:
  const CudaDriver* driver_ = nullptr;  // null: nothing to undo
  bool pushed_ = false;
  int capture_mode_;  // that this thread had
  int code_ = 0;
};

// False: the host's, or unknown to the driver. Only then may the CPU follow the address. Needs no
// context. Throws CudaError.
bool is_gpu_memory(const CudaDriver& driver, const void* data);

// Where GPU memory lies, as a GPU whose context is current sees it. Throws CudaError.
enum class Residence { kThisGpu, kOtherGpu, kSeveralAllocations };
Residence residence(const Gpu& gpu, const void* data, uint64_t bytes);

}  // namespace softtcpx
