#include "softtcpx/small_copy.h"

#include <algorithm>

namespace softtcpx {
namespace {

constexpr unsigned kWarp = 32, kMostThreads = 1024;
constexpr char kName[] = "softtcpx_copy_small";

// A plugin compiles nothing: the driver takes this text for any GPU since Volta. Thread t copies
// units t, t + threads, ...; behind a barrier the first one writes the ticket, past all that the
// block has stored.
constexpr char kText[] = R"(.version 6.4
.target sm_70
.address_size 64
.visible .entry softtcpx_copy_small(.param .align 8 .b8 told_by_value[32])
{
  .reg .pred %p<3>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [told_by_value];
  ld.param.u64 %rd2, [told_by_value+8];
  ld.param.u64 %rd3, [told_by_value+16];
  ld.param.u32 %r1, [told_by_value+24];
  ld.param.u32 %r2, [told_by_value+28];
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %r3;
NEXT:
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra COPIED;
  mul.wide.u32 %rd4, %r5, 16;
  add.u64 %rd5, %rd1, %rd4;
  add.u64 %rd6, %rd2, %rd4;
  ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd5];
  st.global.v4.u32 [%rd6], {%r6, %r7, %r8, %r9};
  add.u32 %r5, %r5, %r4;
  bra NEXT;
COPIED:
  bar.sync 0;
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra END;
  fence.acq_rel.sys;
  st.relaxed.sys.global.u32 [%rd3], %r2;
END:
  ret;
}
)";
static_assert(sizeof(SmallCopyArguments) == 32, "as the text has it");

}  // namespace

int SmallCopy::load(const Gpu& gpu) {
  driver_ = gpu.driver;
  if (const int code = driver_->module_load_data(&module_, kText)) return code;
  const int code = driver_->module_get_function(&kernel_, module_, kName);
  if (code != 0) unload();
  return code;
}

void SmallCopy::unload() {
  if (module_ != nullptr) driver_->module_unload(module_);
  module_ = nullptr;
}

int SmallCopy::begin(const SmallCopyArguments& arguments, CudaStream stream) const {
  const unsigned warps = (arguments.units + kWarp - 1) / kWarp;
  void* all[] = {const_cast<SmallCopyArguments*>(&arguments)};
  return driver_->launch_kernel(kernel_, 1, 1, 1, std::min(kMostThreads, kWarp * warps), 1, 1, 0,
                                stream, all, nullptr);
}

}  // namespace softtcpx
