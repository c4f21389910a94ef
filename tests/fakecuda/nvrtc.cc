// The run-time compiler to go with the fake driver: its "cubin" is the source behind a mark.
// FAKENVRTC_FAIL=1 makes every compilation fail with a log.
#include <cstdlib>
#include <cstring>
#include <string>

#define FAKENVRTC_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr char kMark[] = "fake cubin of ";
constexpr int kCompilation = 6;

struct Program {
  std::string cubin;
  std::string log;
};

}  // namespace

FAKENVRTC_API const char* nvrtcGetErrorString(int code) {
  return code == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}

FAKENVRTC_API int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

FAKENVRTC_API int nvrtcCreateProgram(Program** program, const char* source, const char*, int,
                                     const char* const*, const char* const*) {
  *program = new Program{kMark + std::string(source), ""};
  return 0;
}

FAKENVRTC_API int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}

FAKENVRTC_API int nvrtcCompileProgram(Program* program, int, const char* const*) {
  if (getenv("FAKENVRTC_FAIL") == nullptr) return 0;
  program->log = "told to fail";
  return kCompilation;
}

FAKENVRTC_API int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
FAKENVRTC_API int nvrtcGetProgramLog(Program* program, char* log) {
  memcpy(log, program->log.c_str(), program->log.size() + 1);
  return 0;
}
FAKENVRTC_API int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  *bytes = program->cubin.size() + 1;
  return 0;
}
FAKENVRTC_API int nvrtcGetCUBIN(Program* program, char* cubin) {
  memcpy(cubin, program->cubin.c_str(), program->cubin.size() + 1);
  return 0;
}
