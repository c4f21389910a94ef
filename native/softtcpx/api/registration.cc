#include "softtcpx/api/registration.h"

#include <string>

#include "softtcpx/environment/log.h"
#include "softtcpx/transfer/device.h"

namespace softtcpx {

std::optional<Memory> gpu_memory(Comm& comm, const Gpu& gpu, const void* data, uint64_t bytes) {
  const CurrentContext current(gpu);
  const bool on_gpu = gpu.driver != nullptr && is_gpu_memory(*gpu.driver, data);
  const bool out_of_reach = comm.gpu() && comm.device().settings.traps.device_memory != 0 &&
                            comm.kind() == ObjectKind::kRecvComm;
  if (!on_gpu && !out_of_reach) return Memory::kEmulated;
  std::string wrong;
  if (!on_gpu) {
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
