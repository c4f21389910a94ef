#include "softtcpx/api/registration.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "softtcpx/environment/log.h"
#include "softtcpx/environment/socket.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {
namespace {

// Whether the CPU may read its first byte and its last, as it may not of a GPU's memory that was
// freed. The kernel answers where a look of ours would crash.
bool is_host_memory(const void* data, uint64_t bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return true;
  const Fd out(ends[0]), in(ends[1]);
  const auto* const first = static_cast<const uint8_t*>(data);
  return bytes == 0 ||
         (::write(in.get(), first, 1) == 1 && ::write(in.get(), first + bytes - 1, 1) == 1);
}

}  // namespace

std::optional<Memory> gpu_memory(Comm& comm, const Gpu& gpu, const void* data, uint64_t bytes) {
  const CurrentContext current(gpu);
  const bool on_gpu = gpu.driver != nullptr && is_gpu_memory(*gpu.driver, data);
  const bool out_of_reach = comm.gpu() && comm.device().settings.traps.device_memory != 0 &&
                            comm.kind() == ObjectKind::kRecvComm;
  const bool on_host = !on_gpu && is_host_memory(data, bytes);
  if (on_host && !out_of_reach) return Memory::kEmulated;
  std::string wrong;
  if (!on_gpu && !on_host) {
    wrong = "are no memory, neither of a GPU nor of this process";
  } else if (on_host) {
    wrong = "are no GPU's, and SOFTTCPX_TRAP_DEVICE_MEMORY keeps bounce pages from the CPU";
  } else if (!gpu) {
    wrong = "are a GPU's, and no context is current";
  } else {
    switch (residence(gpu, data, bytes)) {
      case Residence::kThisGpu:
        if (comm.serve_gpu_memory(gpu)) return Memory::kGpu;
        wrong = "are a GPU's, and no context was current at listen or accept";
        break;
      case Residence::kOtherGpu:
        wrong = "lie in another GPU than the connection's, GPU " + std::to_string(gpu.ordinal);
        break;
      case Residence::kSeveralAllocations:
        wrong = "are not within one allocation of GPU " + std::to_string(gpu.ordinal);
        break;
    }
  }
  SOFTTCPX_WARN("regMr: %llu bytes at %p %s", static_cast<unsigned long long>(bytes), data,
                wrong.c_str());
  return std::nullopt;
}

}  // namespace softtcpx
