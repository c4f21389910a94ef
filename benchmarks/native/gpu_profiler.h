// From when to when each kernel and each copy ran on the GPU, as NVIDIA's profilers know it: by
// CUPTI, which is found at run time. Nothing of a launch, and no event, is in these times.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tcpx {

class GpuProfiler {
 public:
  // NULL where there is no CUPTI, or where it refuses; `why` then says so. At most one a process,
  // from before the first use of a GPU.
  static std::unique_ptr<GpuProfiler> find(const std::string& folder, std::string* why);
  ~GpuProfiler();

  const std::string& version() const { return version_; }  // "130001": its own number

  // Microseconds, in the order in which they began.
  struct Times {
    std::vector<double> kernels, copies;
  };
  // Of what is launched between the two calls. All of it is over by the second one. Throws
  // std::runtime_error.
  void begin();
  Times end();

 private:
  struct Calls;
  explicit GpuProfiler(std::unique_ptr<Calls> calls);

  std::unique_ptr<Calls> calls_;
  std::string version_;
};

}  // namespace tcpx
