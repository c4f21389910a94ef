// Slots in memory of a GPU that somebody else allocated; payload and verdicts are the GPU's work,
// and exactly those of the CPU.
#pragma once

#include <memory>
#include <vector>

#include "cuda/gpu.h"
#include "memory/payload_arguments.h"
#include "memory/slots.h"

namespace tcpx {

class CudaSlots final : public SlotMemory {
 public:
  // Checks what a plugin would take on trust: [pointer, pointer + bytes) begins at a multiple of
  // 4096, is whole pages, and lies inside one allocation of GPU `gpu`. Throws std::invalid_argument
  // with the reason, CudaUnavailable, CudaError.
  CudaSlots(CudaAddress pointer, size_t bytes, int gpu);

  uint8_t* data() const override { return reinterpret_cast<uint8_t*>(pointer_); }
  size_t bytes() const override { return bytes_; }
  size_t capacity() const override { return bytes_; }
  int gpu() const override { return gpu_.facts.ordinal; }

  // For people who look: bytes as they are now. Throws std::invalid_argument beyond the end.
  void read(uint8_t* out, size_t offset, size_t bytes) const;

 protected:
  void do_fill(const Batch& batch) override;
  void do_poison(const Batch& batch) override;
  SlotVerdict do_verify(const Batch& batch) override;
  void do_fill(const Batch& batch, const ElementGroup& group) override;
  void do_poison(const Batch& batch, const ElementGroup& group) override;
  ElementVerdict do_verify(const Batch& batch, const ElementGroup& group) override;

 private:
  void launch(const Batch& batch, bool guard, unsigned flip, bool verify);
  void launch_elements(const Batch& batch, const ElementGroup& group, bool guard, unsigned flip,
                       bool inputs, const char* kernel);
  void upload();
  PayloadFindings findings_now();
  SlotVerdict verdict_of(const Batch& batch);

  Gpu& gpu_;
  const CudaAddress pointer_;
  const size_t bytes_;
  GpuStream stream_;
  std::unique_ptr<GpuMemory> table_;  // findings, behind them the pieces of a batch, and keys
  std::vector<uint8_t> prepared_;     // what goes there
};

}  // namespace tcpx
