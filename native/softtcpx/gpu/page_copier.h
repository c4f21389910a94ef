// Bounce pages that a GPU has in its own memory, too: what has arrived in page-locked memory is
// brought there by the copy engine before the caller is told. A kernel of few blocks, as NCCL's
// are, reads pages over PCIe a good deal slower than the engine does.
//
// All of it is the caller's part: workers never call the driver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softtcpx/gpu/cuda.h"
#include "softtcpx/gpu/pinned.h"

namespace softtcpx {

class PageCopier {
 public:
  struct Run {  // of neighbours
    CudaAddress to;
    const uint8_t* from;
    size_t bytes;
  };
  static constexpr uint32_t kMostRuns = 64;

  // Throws CudaError, or std::system_error where the operating system has no memory to give.
  explicit PageCopier(const Gpu& gpu);
  // Waits for what is under way.
  ~PageCopier();
  PageCopier(const PageCopier&) = delete;
  PageCopier& operator=(const PageCopier&) = delete;

  // The context must be current, as for what follows.
  void copy(const Run* runs, uint32_t count);
  // The number that is told when all that was begun has landed.
  uint32_t tell();
  // Asks the driver for failures that came later than the call that caused them.
  void ask();

  bool landed(uint32_t number) const {
    return static_cast<int32_t>(__atomic_load_n(told_, __ATOMIC_ACQUIRE) - number) >= 0;
  }
  // 0: no call has failed.
  int code() const { return code_; }
  const char* failed_call() const { return failed_call_; }

 private:
  void note(const char* call, int code);

  const Gpu gpu_;
  PinnedMemory memory_;  // a page with `told_`
  uint32_t* told_ = nullptr;
  CudaStream stream_ = nullptr;
  uint32_t number_ = 0;
  const char* failed_call_ = "";
  int code_ = 0;
};

}  // namespace softtcpx
