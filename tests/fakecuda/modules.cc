// Modules and launches. What the fake NVRTC "compiles" is the source behind a mark; a text for the
// driver's own compiler is taken as it is. A module offers the kernels that its source names, and
// runs them as this library was built with them.
#include <cstring>
#include <set>
#include <vector>

#include "fake.h"

using namespace fakecuda;

namespace {

constexpr char kMark[] = "fake cubin of ";
constexpr char kPtx[] = ".version ";

bool begins_with(const char* text, const char* mark) {
  return strncmp(text, mark, strlen(mark)) == 0;
}

struct Module {
  std::string source;
  CUdevice device;
};
struct Function {
  const Kernel* kernel;
  CUdevice device;
};

// Those that nobody unloads stay the driver's until the process ends.
std::set<Module*>& modules() {
  static auto* all = new std::set<Module*>;  // never destroyed: threads may outlive it
  return *all;
}

std::set<Function*>& functions() {
  static auto* all = new std::set<Function*>;
  return *all;
}

}  // namespace

FAKECUDA_API CUresult cuModuleLoadData(Module** module, const void* image) {
  ENTER_CONTEXT();
  const char* text = static_cast<const char*>(image);
  if (!begins_with(text, kMark) && !begins_with(text, kPtx)) return kInvalidImage;
  *module = *modules().insert(new Module{text, context->device}).first;
  return kSuccess;
}

FAKECUDA_API CUresult cuModuleUnload(Module* module) {
  ENTER_CONTEXT();
  if (modules().erase(module) == 0) return kInvalidHandle;
  delete module;
  return kSuccess;
}

FAKECUDA_API CUresult cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER_CONTEXT();
  const Kernel* kernel = find_kernel(name);
  if (kernel == nullptr || module->source.find(name) == std::string::npos) return kNotFound;
  *function = *functions().insert(new Function{kernel, module->device}).first;
  return kSuccess;
}

// Kernels have one argument, a block of plain data, which is copied as the real driver does.
FAKECUDA_API CUresult cuLaunchKernel(Function* function, unsigned blocks, unsigned blocks_y,
                                     unsigned blocks_z, unsigned threads, unsigned threads_y,
                                     unsigned threads_z, unsigned, void* handle, void** arguments,
                                     void**) {
  ENTER_CONTEXT();
  if (functions().count(function) == 0 || function->device != context->device) {
    return kInvalidHandle;
  }
  if (blocks == 0 || blocks_y == 0 || blocks_y > 65535) return kInvalidValue;
  if (threads == 0 || threads > 1024) return kInvalidValue;
  if (blocks_z != 1 || threads_y != 1 || threads_z != 1) return kInvalidValue;
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  const Kernel* kernel = function->kernel;
  ++driver().calls[kernel->name];
  const auto* bytes = static_cast<const uint8_t*>(arguments[0]);
  std::vector<uint8_t> copy(bytes, bytes + kernel->argument_bytes);
  keep_order(lock, *stream);
  stream->submit([context, kernel, blocks, blocks_y, threads, copy = std::move(copy)] {
    alignas(16) static thread_local uint8_t aligned[8192];
    memcpy(aligned, copy.data(), copy.size());
    if (!kernel->run(context->device, {blocks, blocks_y, threads}, aligned)) {
      context->error = kIllegalAddress;
    }
  });
  return kSuccess;
}
