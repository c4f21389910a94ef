// What NCCL does with a plugin that puts data into a GPU's memory itself, where nobody says
// otherwise. Runs decide it for all their ranks: tcpx_mpi/transport/in_place.py has the same rules.
#pragma once

#include "cuda/gpu.h"
#include "net/net.h"

namespace tcpx {

// Whether what was received is visible only once it is flushed. Reads NCCL_NET_FORCE_FLUSH.
bool needs_flush(const NetProperties& properties, const GpuFacts& gpu);

// Whether its memory is registered as a dma-buf.
bool takes_dma_buf(const Net& net, const NetProperties& properties, const GpuFacts& gpu);

}  // namespace tcpx
