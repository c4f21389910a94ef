// Small copies out of a GPU without a call of the driver each: a kernel that stays for a while does
// them, where the environment asks for it. It takes a part of one multiprocessor, and whoever waits
// for all that the GPU does waits for it, a few milliseconds at most.
#pragma once

#include <cstdint>
#include <optional>

#include "softtcpx/gpu/cuda.h"
#include "softtcpx/gpu/pinned.h"
#include "staying/letters.h"

namespace softtcpx {

class StayingCopier {
 public:
  // Numbers are told in the low half of the word that the GPU sees at `told_at`. Throws
  // std::exception, CudaError where the driver takes no kernel.
  StayingCopier(const Gpu& gpu, uint64_t told_at, int64_t linger_us);
  ~StayingCopier();
  StayingCopier(const StayingCopier&) = delete;
  StayingCopier& operator=(const StayingCopier&) = delete;

  // The next letter: add() what it may have, and then send(). The context must be current, as for
  // what follows.
  bool has_room(uint64_t copies, uint64_t bytes) const;
  static bool takes(CudaAddress from, const void* to, uint64_t bytes);
  void add(CudaAddress from, const void* to, uint64_t bytes);
  int send(uint32_t number);
  // Launches a kernel where something is to be done and none is there; the driver's code.
  int tend();
  // 600 while something is under way.
  int query();

  // Whoever asks.
  bool needs_kernel() const { return letters_->needs_kernel(); }

 private:
  const Gpu gpu_;
  void* function_ = nullptr;
  CudaStream stream_ = nullptr;
  PinnedMemory memory_;
  std::optional<tcpx::Letters> letters_;
};

}  // namespace softtcpx
