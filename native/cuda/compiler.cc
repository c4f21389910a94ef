#include "cuda/compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <sstream>

#include "cuda/driver.h"

namespace tcpx {
namespace {

struct Nvrtc {
  const char* (*error_string)(int);
  int (*version)(int*, int*);
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(void*, int, const char* const*);
  int (*log_size)(void*, size_t*);
  int (*log)(void*, char*);
  int (*cubin_size)(void*, size_t*);
  int (*cubin)(void*, char*);
  int (*destroy)(void**);
  NvrtcFound found;
};

CudaCompiler settings;

template <typename Function>
bool find(void* library, Function** function, const char* name) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

bool complete(void* library, Nvrtc* n) {
  return find(library, &n->error_string, "nvrtcGetErrorString") &&
         find(library, &n->version, "nvrtcVersion") &&
         find(library, &n->create, "nvrtcCreateProgram") &&
         find(library, &n->compile, "nvrtcCompileProgram") &&
         find(library, &n->log_size, "nvrtcGetProgramLogSize") &&
         find(library, &n->log, "nvrtcGetProgramLog") &&
         find(library, &n->cubin_size, "nvrtcGetCUBINSize") &&
         find(library, &n->cubin, "nvrtcGetCUBIN") &&
         find(library, &n->destroy, "nvrtcDestroyProgram");
}

Nvrtc load() {
  std::vector<std::string> folders = settings.folders;
  folders.push_back("");  // the loader's own way
  folders.push_back("/usr/local/cuda/lib64");
  for (const std::string& folder : folders) {
    for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) {
      const std::string path = folder.empty() ? name : folder + "/" + name;
      void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      Nvrtc n;
      if (library == nullptr || !complete(library, &n)) continue;
      int major = 0, minor = 0;
      n.version(&major, &minor);
      n.found = {std::to_string(major) + "." + std::to_string(minor), path};
      return n;
    }
  }
  throw CudaUnavailable(
      "no NVRTC (libnvrtc.so.13 or .12), which compiles the kernels: install "
      "the extra cuda13 or cuda12 of tcpx-mpi");
}

const Nvrtc& nvrtc() {
  static const Nvrtc loaded = load();
  return loaded;
}

std::string compile(const char* source, int major, int minor) {
  const Nvrtc& n = nvrtc();
  void* program = nullptr;
  const auto check = [&](int code, const char* call) {
    if (code == 0) return;
    size_t bytes = 0;
    std::string log;
    if (program != nullptr && n.log_size(program, &bytes) == 0) {
      log.resize(bytes);
      n.log(program, log.data());
      std::replace(log.begin(), log.end(), '\n', ' ');  // an error is one line
    }
    n.destroy(&program);
    throw CudaError(call, code, n.error_string(code), log.c_str());
  };
  check(n.create(&program, source, "tcpx_mpi.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::string arch = "-arch=sm_" + std::to_string(major) + std::to_string(minor);
  const char* options[] = {arch.c_str(), "-std=c++17", "-default-device"};
  check(n.compile(program, 3, options), "nvrtcCompileProgram");
  size_t bytes = 0;
  check(n.cubin_size(program, &bytes), "nvrtcGetCUBINSize");
  std::string cubin(bytes, '\0');
  check(n.cubin(program, cubin.data()), "nvrtcGetCUBIN");
  n.destroy(&program);
  return cubin;
}

// FNV-1a, twice: a key of a cache, not a proof of origin.
std::string digest(const std::string& text) {
  uint64_t hash[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
  for (const char c : text) {
    for (uint64_t& h : hash) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash[1] ^= hash[1] >> 29;
  }
  char digits[33];
  snprintf(digits, sizeof(digits), "%016llx%016llx", static_cast<unsigned long long>(hash[0]),
           static_cast<unsigned long long>(hash[1]));
  return digits;
}

// By all that the result depends on.
std::string cache_path(const char* source, int major, int minor) {
  if (settings.cache.empty()) return "";
  const std::string arch = std::to_string(major) + std::to_string(minor);
  return settings.cache + "/sm" + arch + "-nvrtc" + nvrtc().found.version + "-" + digest(source) +
         ".cubin";
}

// The file is the digest of what follows it: half a file is none.
bool read_cached(const std::string& path, std::string* cubin) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  std::ostringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  if (text.size() <= 32 || digest(text.substr(32)) != text.substr(0, 32)) return false;
  *cubin = text.substr(32);
  return true;
}

// Other ranks of this host write the same file: each a name of its own, put in place at once. A
// cache that cannot be written costs the next run a compilation, and nothing else.
void write_cached(const std::string& path, const std::string& cubin) {
  std::string folder;
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    if (mkdir(path.substr(0, at).c_str(), 0777) != 0 && errno != EEXIST) return;
  }
  const std::string temporary = path + "." + std::to_string(getpid());
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << digest(cubin) << cubin;
  file.close();
  if (!file || rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

}  // namespace

void set_cuda_compiler(const CudaCompiler& compiler) { settings = compiler; }

NvrtcFound find_nvrtc() { return nvrtc().found; }

std::string compile_cuda(const char* source, int major, int minor) {
  const std::string path = cache_path(source, major, minor);
  std::string cubin;
  if (!path.empty() && read_cached(path, &cubin)) return cubin;
  return recompile_cuda(source, major, minor);
}

std::string recompile_cuda(const char* source, int major, int minor) {
  const std::string cubin = compile(source, major, minor);
  const std::string path = cache_path(source, major, minor);
  if (!path.empty()) write_cached(path, cubin);
  return cubin;
}

}  // namespace tcpx
