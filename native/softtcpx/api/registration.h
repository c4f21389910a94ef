// What regMr makes of an address.
#pragma once

#include <optional>

#include "softtcpx/transfer/comm.h"

namespace softtcpx {

// What lies at an address that the caller calls GPU memory; where it is a GPU's, the connection is
// ready to move it. Null with the reason in the log. Throws CudaError or std::system_error.
std::optional<Memory> gpu_memory(Comm& comm, const Gpu& gpu, const void* data, uint64_t bytes);

}  // namespace softtcpx
