#include "cuda_on_cpu.h"
// The kernels themselves, as the GPU gets them.
#include "memory/elements.cu"
