// The kernels that this library was built with.
#include "cuda_on_cpu.h"

namespace fakecuda {
namespace {

std::map<std::string, Kernel>& kernels() {
  static auto* const all = new std::map<std::string, Kernel>;
  return *all;
}

}  // namespace

Registration::Registration(const char* name, size_t argument_bytes,
                           bool (*run)(CUdevice, Grid, const void*)) {
  kernels()[name] = {name, argument_bytes, run};
}

const Kernel* find_kernel(const std::string& name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

}  // namespace fakecuda
