#include "cuda/gpu.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "cuda/compiler.h"
#include "cuda/sources.h"

namespace tcpx {
namespace {

int attribute(int number, int device) {
  int value = 0;
  check_cuda(cuda().device_attribute(&value, number, device), "cuDeviceGetAttribute");
  return value;
}

std::string uuid_text(const uint8_t (&uuid)[16]) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    snprintf(digits, sizeof(digits), "%02x", uuid[i]);
    text += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

GpuFacts facts_of(int ordinal) {
  const CudaCalls& cu = cuda();
  int count = 0;
  check_cuda(cu.device_count(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count) {
    throw CudaUnavailable("no GPU " + std::to_string(ordinal) + ": this process sees " +
                          std::to_string(count));
  }
  int device = 0;
  check_cuda(cu.device_get(&device, ordinal), "cuDeviceGet");
  char name[128] = {}, pci[32] = {};
  uint8_t uuid[16] = {};
  GpuFacts facts;
  facts.ordinal = ordinal;
  check_cuda(cu.device_name(name, sizeof(name), device), "cuDeviceGetName");
  check_cuda(cu.device_pci_bus_id(pci, sizeof(pci), device), "cuDeviceGetPCIBusId");
  check_cuda(cu.device_uuid(uuid, device), "cuDeviceGetUuid");
  check_cuda(cu.device_total_memory(&facts.total_bytes, device), "cuDeviceTotalMem");
  facts.name = name;
  facts.pci = pci;
  std::transform(facts.pci.begin(), facts.pci.end(), facts.pci.begin(), ::tolower);  // as in /sys
  facts.uuid = uuid_text(uuid);
  facts.major = attribute(kCudaMajor, device);
  facts.minor = attribute(kCudaMinor, device);
  facts.multiprocessors = attribute(kCudaMultiprocessors, device);
  int exports = 0;  // unknown to older drivers
  facts.dma_buf = cu.range_handle != nullptr &&
                  cu.device_attribute(&exports, kCudaDmaBuf, device) == 0 && exports != 0;
  return facts;
}

// A cached cubin that is whole and yet does not load was made for something else.
void* load_module(const char* source, const GpuFacts& facts) {
  void* module = nullptr;
  const std::string cached = compile_cuda(source, facts.major, facts.minor);
  if (cuda().module_load(&module, cached.data()) == 0) return module;
  const std::string fresh = recompile_cuda(source, facts.major, facts.minor);
  check_cuda(cuda().module_load(&module, fresh.data()), "cuModuleLoadData");
  return module;
}

void* function_of(void* module, const char* name) {
  void* function = nullptr;
  check_cuda(cuda().module_function(&function, module, name), "cuModuleGetFunction", name);
  return function;
}

}  // namespace

std::vector<GpuFacts> gpus() {
  int count = 0;
  check_cuda(cuda().device_count(&count), "cuDeviceGetCount");
  std::vector<GpuFacts> all;
  for (int ordinal = 0; ordinal < count; ++ordinal) all.push_back(facts_of(ordinal));
  return all;
}

Gpu::Gpu(int ordinal) : facts(facts_of(ordinal)) {
  int device = 0;
  check_cuda(cuda().device_get(&device, ordinal), "cuDeviceGet");
  check_cuda(cuda().primary_retain(&context_, device), "cuDevicePrimaryCtxRetain");
}

const GpuKernels& Gpu::kernels() {
  std::call_once(compiled_, [this] {
    const GpuCurrent current(this);
    void* unpack = load_module(kUnpackSource, facts);
    void* payload = load_module(kPayloadSource, facts);
    kernels_ = {function_of(unpack, "unpack_fragments"), function_of(unpack, "unpack_pages"),
                function_of(payload, "payload_write"), function_of(payload, "payload_verify")};
  });
  return kernels_;
}

void* Gpu::function(const std::string& source, const char* name) {
  const std::lock_guard<std::mutex> lock(modules_mutex_);
  void*& module = modules_[source];
  if (module == nullptr) module = load_module(source.c_str(), facts);
  return function_of(module, name);
}

void Gpu::select() const { check_cuda(cuda().set_current(context_), "cuCtxSetCurrent"); }

void Gpu::launch(void* function, unsigned blocks, unsigned threads, const void* argument,
                 void* stream) const {
  void* arguments[] = {const_cast<void*>(argument)};
  check_cuda(cuda().launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
             "cuLaunchKernel");
}

Gpu& use_gpu(int ordinal) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, std::unique_ptr<Gpu>>;  // the driver goes its own way
  const std::lock_guard<std::mutex> lock(mutex);
  auto& gpu = (*all)[ordinal];
  if (gpu == nullptr) gpu = std::make_unique<Gpu>(ordinal);
  return *gpu;
}

DmaBuf::DmaBuf(const void* data, size_t bytes) {
  if (cuda().range_handle == nullptr) throw CudaUnavailable("this driver makes no dma-bufs");
  const auto page = static_cast<CudaAddress>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<CudaAddress>(data);
  const CudaAddress begin = address / page * page;
  const CudaAddress end = (address + bytes + page - 1) / page * page;
  offset_ = address - begin;
  check_cuda(cuda().range_handle(&fd_, begin, end - begin, kCudaDmaBufHandle, 0),
             "cuMemGetHandleForAddressRange");
}

DmaBuf::~DmaBuf() { ::close(fd_); }

int gpu_of(const void* pointer) {
  // Of what it never heard of this form says zeros; the one for a single attribute fails.
  unsigned type = 0;
  int ordinal = -1;
  int attributes[] = {kCudaMemoryType, kCudaOrdinal};
  void* values[] = {&type, &ordinal};
  check_cuda(
      cuda().pointer_attributes(2, attributes, values, reinterpret_cast<CudaAddress>(pointer)),
      "cuPointerGetAttributes");
  return type == kCudaMemoryOnDevice ? ordinal : -1;
}

void copy_now(CudaAddress to, CudaAddress from, size_t bytes, const std::string& what) {
  check_cuda(cuda().copy_async(to, from, bytes, nullptr), "cuMemcpyAsync", what);
  check_cuda(cuda().stream_wait(nullptr), "cuStreamSynchronize", what);
}

GpuMemory::GpuMemory(Gpu& gpu, size_t bytes) : gpu_(gpu), bytes_(bytes) {
  const GpuCurrent current(&gpu_);
  check_cuda(cuda().mem_alloc(&address_, std::max<size_t>(bytes, 1)), "cuMemAlloc",
             std::to_string(bytes) + " bytes");
}

GpuMemory::~GpuMemory() {
  const GpuCurrent current(gpu_, std::nothrow);
  cuda().mem_free(address_);
}

PinnedMemory::PinnedMemory(Gpu& gpu, size_t bytes) : gpu_(gpu), bytes_(bytes) {
  const GpuCurrent current(&gpu_);
  void* data = nullptr;
  check_cuda(cuda().host_alloc(&data, std::max<size_t>(bytes, 1), kCudaPortableMapped),
             "cuMemHostAlloc", std::to_string(bytes) + " bytes");
  data_ = static_cast<uint8_t*>(data);
  memset(data_, 0, bytes);
}

PinnedMemory::~PinnedMemory() {
  const GpuCurrent current(gpu_, std::nothrow);
  cuda().host_free(data_);
}

GpuStream::GpuStream(Gpu& gpu) : gpu_(gpu) {
  const GpuCurrent current(&gpu_);
  check_cuda(cuda().stream_create(&handle_, kCudaNonBlocking), "cuStreamCreate");
}

GpuStream::~GpuStream() {
  const GpuCurrent current(gpu_, std::nothrow);
  cuda().stream_destroy(handle_);
}

}  // namespace tcpx
