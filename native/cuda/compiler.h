// Kernels from source: NVRTC, found at run time, compiles them for the GPU at hand. A folder keeps
// them, so that only the first run on a kind of GPU compiles.
#pragma once

#include <string>
#include <vector>

namespace tcpx {

struct CudaCompiler {
  std::vector<std::string> folders;  // where libnvrtc may be, before the system's own places
  std::string cache;                 // folder of what was compiled; "": nothing is kept
};

// Of the whole process, before the first use of a GPU.
void set_cuda_compiler(const CudaCompiler& compiler);

// "13.0" and where it was found. Throws CudaUnavailable if there is none.
struct NvrtcFound {
  std::string version;
  std::string path;
};
NvrtcFound find_nvrtc();

// The machine code of `source` for compute capability `major`.`minor`. Throws CudaUnavailable
// without NVRTC, CudaError with the compiler's words where the source is refused.
std::string compile_cuda(const char* source, int major, int minor);
// The same, and not from the cache, whose entry is written anew: what was there does not load.
std::string recompile_cuda(const char* source, int major, int minor);

}  // namespace tcpx
