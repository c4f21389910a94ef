#include "cuda_on_cpu.h"
// The kernel itself, as the GPU gets it.
#include "staying/staying.cu"
