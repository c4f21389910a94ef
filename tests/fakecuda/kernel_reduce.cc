#include "cuda_on_cpu.h"
// The kernels themselves, as the GPU gets them, of every type and operation.
#include "unpack/reduce.cu"

// clang-format off
#define OF_OP(type, op)                                           \
  TCPX_REDUCE_FRAGMENTS(reduce_fragments_##type##_##op, type, op) \
  TCPX_REDUCE_LOCAL(reduce_local_##type##_##op, type, op)
#define OF_TYPE(type)                                                         \
  OF_OP(type, 0) OF_OP(type, 1) OF_OP(type, 2) OF_OP(type, 3)                 \
  TCPX_SCALE(scale_##type##_0, type, 0) TCPX_SCALE(scale_##type##_1, type, 1)
// clang-format on

namespace tcpx {

OF_TYPE(0)
OF_TYPE(1)
OF_TYPE(2)
OF_TYPE(3)
OF_TYPE(4)
OF_TYPE(5)
OF_TYPE(6)
OF_TYPE(7)
OF_TYPE(8)
OF_TYPE(9)
OF_TYPE(10)
OF_TYPE(11)

}  // namespace tcpx
