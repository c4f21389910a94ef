// softtcpx brings its kernel as text for the driver's own compiler, which no CPU runs: this says
// what that text says.
#include "cuda_on_cpu.h"
#include "softtcpx/small_copy.h"

namespace softtcpx {
namespace {

struct Nothing {};

void begin(const SmallCopyArguments&, Nothing&) {}

void copy(const SmallCopyArguments& a, Nothing&) {
  for (u32 i = threadIdx.x; i < a.units; i += blockDim.x) {
    store16(a.to + kSmallCopyUnit * i, load16(a.from + kSmallCopyUnit * i));
  }
}

void tell(const SmallCopyArguments& a, Nothing&) {
  if (threadIdx.x > 0) return;
  fakecuda::running.reported = true;
  __atomic_store_n(reinterpret_cast<u32*>(fakecuda::touch(a.told, sizeof(u32))), a.ticket,
                   __ATOMIC_RELEASE);
}

}  // namespace

TCPX_KERNEL(softtcpx_copy_small, SmallCopyArguments, Nothing, begin, copy, tell)

}  // namespace softtcpx
