// The kernels of the sources, compiled for the CPU.
#include "fake.h"

namespace fakecuda {

const Kernel* find_kernel(const std::string&) { return nullptr; }

}  // namespace fakecuda
