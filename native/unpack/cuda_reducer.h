// Reductions and scalings in GPU memory: what a CudaUnpacker puts into its launches. Nothing here
// waits or allocates but `prepare`.
#pragma once

#include <cstdint>

#include "cuda/gpu.h"
#include "reduce/element.h"
#include "unpack/reduce_arguments.h"
#include "unpack/unpack.h"

namespace tcpx {

// How fragments are spread over blocks: how many a block takes, and which fill the memory's ways.
unsigned fragments_of_block(uint64_t fragments, int multiprocessors);

class CudaReducer {
 public:
  explicit CudaReducer(Gpu& gpu) : gpu_(gpu) {}

  // Compiles the kernels of a type and an operation where need be. Throws CudaUnavailable,
  // CudaError.
  void prepare(const Arithmetic& arithmetic);

  // A receive of the launch to come.
  void add(const UnpackSource& source, const uint8_t* local, uint8_t* destination);
  unsigned items() const { return items_; }
  bool full() const { return items_ == kReduceItems; }
  void clear() { items_ = fragments_ = 0; }

  // One launch for all that were added; `ticket_at` 0: a later launch on the stream has the ticket.
  // The driver's code, 0: well.
  int launch(void* stream, uint64_t blocks_done, uint64_t ticket_at, uint64_t ticket);

  // Of elements that lie in one piece, a launch each.
  int reduce(void* stream, uint64_t from, uint64_t local, uint64_t to, uint64_t bytes) const;
  int scale(void* stream, uint64_t from, uint64_t to, uint64_t bytes) const;

 private:
  int launch_local(void* function, const LocalArguments& arguments, void* stream) const;

  Gpu& gpu_;
  Arithmetic arithmetic_;
  void* fragments_kernel_ = nullptr;
  void* local_kernel_ = nullptr;
  void* scale_kernel_ = nullptr;
  ReduceArguments arguments_{};
  unsigned items_ = 0;
  uint64_t fragments_ = 0;
};

}  // namespace tcpx
