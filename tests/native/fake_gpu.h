// The fake CUDA driver in the hands of a native test.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "check.h"
#include "cuda/compiler.h"
#include "cuda/gpu.h"

// Loaded by its path, under the name that later loads ask for: "libcuda.so.1" is it from then on.
inline void* fake_driver() {
  static void* const library = dlopen(FAKECUDA_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  return library;
}

template <typename Function>
Function* fake_call(const char* name) {
  void* symbol = dlsym(fake_driver(), name);
  if (symbol == nullptr) check::fail(__FILE__, __LINE__, std::string("no ") + name);
  return reinterpret_cast<Function*>(symbol);
}

// GPU `ordinal` of the fake driver, also where there is a real one; of the real one where
// TCPX_MPI_REAL_GPU is set, which may name a folder with NVRTC. It is current from now on.
inline tcpx::Gpu& test_gpu(int ordinal = 0) {
  const char* real = getenv("TCPX_MPI_REAL_GPU");
  if (real == nullptr) fake_driver();
  // Many tests compile the same kernels, and each is a process of its own.
  const char* cache = getenv("TCPX_MPI_CUDA_CACHE");
  tcpx::set_cuda_compiler({{real != nullptr ? real : FAKECUDA_FOLDER},
                           real != nullptr && cache != nullptr ? cache : ""});
  tcpx::Gpu& gpu = tcpx::use_gpu(ordinal);
  gpu.select();
  return gpu;
}

// A call of the driver that test_gpu() took.
template <typename Function>
Function* driver_call(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(driver != nullptr);
  return reinterpret_cast<Function*>(dlsym(driver, name));
}

// Which GPU is current on this thread.
inline int current_gpu() {
  int ordinal = -1;
  CHECK_EQ(driver_call<int(int*)>("cuCtxGetDevice")(&ordinal), 0);
  return ordinal;
}

// Nothing asynchronous runs while one of these lives.
class Held {
 public:
  Held() { fake_call<void(int)>("fakecuda_hold")(1); }
  ~Held() { fake_call<void(int)>("fakecuda_hold")(0); }
};
