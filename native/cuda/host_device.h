// Functions whose text is the CPU's and the GPU's.
#pragma once

#ifdef __CUDACC__
#define TCPX_HOST_DEVICE __device__ __forceinline__
#else
#define TCPX_HOST_DEVICE inline __attribute__((always_inline))
#endif
