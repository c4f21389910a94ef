// Unpacks into GPU memory, on the GPU's own time. Nothing here waits: what was submitted is begun
// by `flush`, and its end is a number in page-locked memory that the GPU writes.
#pragma once

#include <memory>
#include <vector>

#include "cuda/gpu.h"
#include "unpack/cuda_reducer.h"
#include "unpack/kernel_arguments.h"
#include "unpack/staying_unpacker.h"
#include "unpack/unpacker.h"

namespace tcpx {

class CudaUnpacker final : public Unpacker {
 public:
  // Compiles where need be. Throws CudaUnavailable, CudaError.
  CudaUnpacker(int gpu, UnpackMode mode);
  // Waits 2 s for what is under way; what the GPU then still has in hand is left to it.
  ~CudaUnpacker() override;

  void reserve(size_t requests) override;
  UnpackResult submit(const UnpackSource& source, uint8_t* destination, uint64_t posted) override;
  void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) override;
  void prepare(const Arithmetic& arithmetic) override;
  UnpackResult submit_reduce(const UnpackSource& source, const uint8_t* local, uint8_t* destination,
                             uint64_t posted) override;
  void reduce(const uint8_t* from, const uint8_t* local, uint8_t* to, uint64_t bytes) override;
  void scale(uint8_t* to, const uint8_t* from, uint64_t bytes) override;
  void flush() override;
  uint64_t finished() override;
  UnpackFailure failure() const override { return failure_; }

  // From here on the GPU notes when each of the next `rows` begins and ends, a row being so many
  // launches one behind the other. It costs time of its own, a part of which is counted: for
  // batches that are not timed. 0: no more.
  void measure(size_t rows, size_t launches_a_row = 1);
  struct Measured {
    uint64_t requests;
    uint64_t bytes;
    double microseconds;
  };
  // Of all rows since `measure` that are over; waits for those that are not.
  std::vector<Measured> measured();

 private:
  static constexpr size_t kLaunchSlots =
      16;  // launches that may overlap: no gap between two of them

  struct LaunchSlot {
    explicit LaunchSlot(Gpu& gpu) : stream(gpu), blocks_done(gpu, sizeof(uint32_t)) {}
    GpuStream stream;
    GpuMemory blocks_done;
    std::unique_ptr<PinnedMemory> staging;  // of mode host
    std::unique_ptr<GpuMemory> landing;     // of all modes but kernel, where receives are reduced
  };
  struct Launch {
    size_t slot;      // kStaying: none, its requests are with the kernel that stays
    uint64_t ticket;  // of its last request
  };
  static constexpr size_t kStaying = kLaunchSlots;
  struct Timer {
    void* begin;
    void* end;
    Measured measured;
  };

  // What a GPU has in hand that does not end.
  struct Left {
    std::unique_ptr<PinnedMemory> tickets_seen;
    std::vector<std::unique_ptr<LaunchSlot>> slots;
    std::unique_ptr<GpuMemory> lead;
    std::unique_ptr<StayingUnpacker> staying;
  };

  LaunchSlot& slot() { return *slots_[next_slot_]; }
  void begin_copy(uint64_t to, uint64_t from, size_t bytes);
  void copy_fragments(const UnpackSource& source, uint8_t* destination);
  void copy_through_host(const UnpackSource& source, uint8_t* destination, uint64_t posted,
                         bool covered);
  uint8_t* landing(uint64_t bytes);
  void begin_request();
  void forget();
  void begin_timer();
  bool has_stayed();
  void end_launch();
  bool has_ended(const Launch& launch);
  bool ok(int code, const char* call);
  void drop_timers();
  bool idle() const;

  Gpu& gpu_;
  const UnpackMode mode_;
  const GpuKernels& kernels_;
  CudaReducer reducer_;
  std::unique_ptr<PinnedMemory> tickets_seen_;  // a u64 a slot, on lines of their own
  std::vector<std::unique_ptr<LaunchSlot>> slots_;
  std::unique_ptr<StayingUnpacker> staying_;  // of mode staying
  size_t next_slot_ = 0;
  UnpackArguments arguments_{};  // of the launch to come
  unsigned fragments_[kUnpackItems] = {};
  uint64_t unlaunched_ = 0;  // requests
  uint64_t unlaunched_bytes_ = 0;
  uint64_t fragments_unlaunched_ = 0;
  uint64_t reductions_unlaunched_ = 0;                       // that the fused kernel does
  bool pages_unlaunched_ = true;                             // all of them may go by unpack_pages
  std::vector<Launch> launches_ = std::vector<Launch>(256);  // a ring of those under way
  uint64_t launched_ = 0;
  uint64_t ended_ = 0;
  uint64_t finished_ = 0;
  uint32_t polls_ = 0;  // since a launch ended
  UnpackFailure failure_;
  std::vector<Timer> timers_;
  size_t timed_ = 0;  // rows
  size_t launches_a_row_ = 1;
  size_t launches_in_row_ = 0;       // of the one that is being timed
  std::unique_ptr<GpuMemory> lead_;  // filled before each row
};

}  // namespace tcpx
