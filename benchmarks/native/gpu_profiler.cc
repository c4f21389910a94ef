#include "gpu_profiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace tcpx {
namespace {

constexpr uint32_t kCopy = 1;     // CUPTI_ACTIVITY_KIND_MEMCPY
constexpr uint32_t kKernel = 10;  // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: none waits for another
constexpr uint32_t kForced = 1;   // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr size_t kBufferBytes = size_t{1} << 20;

// What records of kernels and of copies begin with, in CUDA 12 and 13.
struct Record {
  uint32_t kind;
  uint8_t about[12];
  uint64_t start, end;  // nanoseconds
};

// CUPTI's callbacks have no argument of ours.
std::mutex mutex;
std::vector<Record> records;

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

int (*next_record)(uint8_t* buffer, size_t valid_bytes, uint8_t** record);

void take_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  uint8_t* at = nullptr;
  while (next_record(buffer, valid_bytes, &at) == 0) {
    Record record;
    memcpy(&record, at, sizeof(record.kind));
    if (record.kind != kCopy && record.kind != kKernel) continue;
    memcpy(&record, at, sizeof(record));
    // Of others there are no times: whoever counts what is left sees that one is missing.
    if (record.start != 0 && record.end >= record.start) records.push_back(record);
  }
  free(buffer);
}

}  // namespace

struct GpuProfiler::Calls {
  int (*version)(uint32_t*);
  int (*register_callbacks)(decltype(&give_buffer), decltype(&take_buffer));
  int (*enable)(uint32_t kind);
  int (*disable)(uint32_t kind);
  int (*flush)(uint32_t flags);
};

namespace {

void check(int code, const char* call) {
  if (code != 0) throw std::runtime_error(std::string(call) + " returned " + std::to_string(code));
}

template <typename Function>
bool find_call(void* library, Function** function, const char* name) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

// NVIDIA's packages for CUDA 13 have it beside NVRTC, those for CUDA 12 in a folder of its own.
void* load(const std::string& folder) {
  for (const std::string& place :
       {folder, folder + "/../../cuda_cupti/lib", std::string(),
        std::string("/usr/local/cuda/lib64"), std::string("/usr/local/cuda/extras/CUPTI/lib64")}) {
    for (const char* name : {"libcupti.so.13", "libcupti.so.12"}) {
      const std::string path = place.empty() ? name : place + "/" + name;
      if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

}  // namespace

GpuProfiler::GpuProfiler(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}

GpuProfiler::~GpuProfiler() = default;

std::unique_ptr<GpuProfiler> GpuProfiler::find(const std::string& folder, std::string* why) {
  void* library = load(folder);
  auto calls = std::make_unique<Calls>();
  if (library == nullptr) {
    *why = "no libcupti.so.13 or .12 that loads";
    return nullptr;
  }
  if (!find_call(library, &calls->version, "cuptiGetVersion") ||
      !find_call(library, &calls->register_callbacks, "cuptiActivityRegisterCallbacks") ||
      !find_call(library, &calls->enable, "cuptiActivityEnable") ||
      !find_call(library, &calls->disable, "cuptiActivityDisable") ||
      !find_call(library, &calls->flush, "cuptiActivityFlushAll") ||
      !find_call(library, &next_record, "cuptiActivityGetNextRecord")) {
    *why = "libcupti lacks a function";
    return nullptr;
  }
  std::unique_ptr<GpuProfiler> found(new GpuProfiler(std::move(calls)));
  try {
    uint32_t version = 0;
    check(found->calls_->version(&version), "cuptiGetVersion");
    found->version_ = std::to_string(version);
    check(found->calls_->register_callbacks(give_buffer, take_buffer),
          "cuptiActivityRegisterCallbacks");
    found->begin();  // it may be refused only here
    found->end();
    return found;
  } catch (const std::runtime_error& error) {
    for (const uint32_t kind : {kKernel, kCopy}) found->calls_->disable(kind);
    *why = error.what();
    return nullptr;
  }
}

void GpuProfiler::begin() {
  check(calls_->enable(kKernel), "cuptiActivityEnable");
  check(calls_->enable(kCopy), "cuptiActivityEnable");
}

GpuProfiler::Times GpuProfiler::end() {
  check(calls_->disable(kKernel), "cuptiActivityDisable");
  check(calls_->disable(kCopy), "cuptiActivityDisable");
  check(calls_->flush(kForced), "cuptiActivityFlushAll");
  const std::lock_guard<std::mutex> lock(mutex);
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.start < b.start; });
  Times times;
  for (const Record& record : records) {
    const double us = static_cast<double>(record.end - record.start) / 1e3;
    (record.kind == kKernel ? times.kernels : times.copies).push_back(us);
  }
  records.clear();
  return times;
}

}  // namespace tcpx
