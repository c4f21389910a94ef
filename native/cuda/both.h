// Functions whose text is the CPU's and the GPU's.
#pragma once

#ifdef __CUDACC__
#define TCPX_BOTH __device__ __forceinline__
#else
#define TCPX_BOTH inline __attribute__((always_inline))
#endif
