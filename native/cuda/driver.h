// The CUDA driver, found at run time: nothing of CUDA is needed to build or to install, and a
// machine without it gets an answer instead of a failure to load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tcpx {

using CudaAddress = unsigned long long;

// There is no GPU to be used here, for a reason that the text says.
class CudaUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A call of the driver or of the run-time compiler that failed.
class CudaError : public std::runtime_error {
 public:
  CudaError(const char* call, int code, const std::string& name, const std::string& what = "")
      : std::runtime_error(std::string(call) + ": " + name + " (" + std::to_string(code) + ")" +
                           (what.empty() ? "" : "; " + what)),
        call_(call),
        code_(code),
        name_(name) {}
  const char* call() const { return call_; }
  int code() const { return code_; }
  const std::string& name() const { return name_; }

 private:
  const char* call_;
  int code_;
  std::string name_;
};

// The functions that we use, as libcuda.so.1 exports them. Of copies and fills those that name
// their stream: the others, too, may return before they are done (copy_now, cuda/gpu.h).
struct CudaCalls {
  int (*init)(unsigned);
  int (*driver_version)(int*);
  int (*error_name)(int, const char**);
  int (*device_count)(int*);
  int (*device_get)(int*, int);
  int (*device_name)(char*, int, int);
  int (*device_uuid)(void*, int);
  int (*device_pci_bus_id)(char*, int, int);
  int (*device_total_memory)(size_t*, int);
  int (*device_attribute)(int*, int, int);
  int (*primary_retain)(void**, int);
  int (*set_current)(void*);
  int (*get_current)(void**);
  int (*mem_alloc)(CudaAddress*, size_t);
  int (*mem_free)(CudaAddress);
  int (*mem_range)(CudaAddress*, size_t*, CudaAddress);
  int (*pointer_attributes)(unsigned, int*, void**, CudaAddress);
  int (*host_alloc)(void**, size_t, unsigned);
  int (*host_free)(void*);
  int (*host_register)(void*, size_t, unsigned);
  int (*host_unregister)(void*);
  int (*copy_async)(CudaAddress, CudaAddress, size_t, void*);
  int (*set8_async)(CudaAddress, unsigned char, size_t, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_wait)(void*);
  int (*stream_query)(void*);
  int (*event_create)(void**, unsigned);
  int (*event_destroy)(void*);
  int (*event_record)(void*, void*);
  int (*event_wait)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*range_handle)(void*, CudaAddress, size_t, int, unsigned long long);  // NULL: older
  int (*module_load)(void**, const void*);
  int (*module_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
};

// Loaded and initialised at the first call, for the life of the process. Throws CudaUnavailable.
const CudaCalls& cuda();

// Throws CudaError if `code` is not success.
void check_cuda(int code, const char* call, const std::string& what = "");

// "CUDA_ERROR_ILLEGAL_ADDRESS".
std::string cuda_error_name(int code);

constexpr int kCudaNotReady = 600;  // of a stream with work left

constexpr int kCudaMultiprocessors = 16;  // numbers of device attributes
constexpr int kCudaMajor = 75;
constexpr int kCudaMinor = 76;
constexpr int kCudaDmaBuf = 124;
constexpr int kCudaDmaBufHandle = 1;  // a type of handles
constexpr int kCudaMemoryType = 2;    // and of pointer attributes
constexpr int kCudaOrdinal = 9;
constexpr unsigned kCudaMemoryOnDevice = 2;  // a memory type
constexpr unsigned kCudaNonBlocking = 1;     // a flag of streams
constexpr unsigned kCudaPortableMapped = 3;  // flags of page-locked memory

}  // namespace tcpx
