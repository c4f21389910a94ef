#include "memory/cuda_slots.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include "cuda/gpu.h"
#include "memory/cuda_pieces.h"

namespace tcpx {
namespace {

constexpr size_t kPage = 4096;
constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksEach = 8;  // of a multiprocessor: all threads that it can hold

std::string hex(CudaAddress pointer) {
  char text[24];
  snprintf(text, sizeof(text), "0x%llx", pointer);
  return text;
}

Gpu& checked(CudaAddress pointer, size_t bytes, int ordinal) {
  Gpu& gpu = use_gpu(ordinal);
  const GpuCurrent current(&gpu);
  const std::string what =
      "GPU memory at " + hex(pointer) + ", " + std::to_string(bytes) + " bytes";
  const int owner = gpu_of(reinterpret_cast<void*>(pointer));
  if (owner < 0) throw std::invalid_argument(what + ": no GPU has memory there");
  if (owner != ordinal) {
    throw std::invalid_argument(what + ": is on GPU " + std::to_string(owner) + ", not on GPU " +
                                std::to_string(ordinal));
  }
  if (pointer % kPage != 0) {
    throw std::invalid_argument(what +
                                ": does not begin at a multiple of 4096; allocate 4095 "
                                "bytes more and begin at the next one");
  }
  if (bytes == 0 || bytes % kPage != 0) {
    throw std::invalid_argument(what + ": is not a multiple of 4096 long; round up");
  }
  CudaAddress base = 0;
  size_t all = 0;
  check_cuda(cuda().mem_range(&base, &all, pointer), "cuMemGetAddressRange");
  if (pointer - base + bytes > all) {
    throw std::invalid_argument(what + ": goes beyond its allocation, which has " +
                                std::to_string(all - (pointer - base)) + " bytes from there on");
  }
  return gpu;
}

}  // namespace

CudaSlots::CudaSlots(CudaAddress pointer, size_t bytes, int gpu)
    : gpu_(checked(pointer, bytes, gpu)), pointer_(pointer), bytes_(bytes), stream_(gpu_) {}

void CudaSlots::read(uint8_t* out, size_t offset, size_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset) {
    throw std::invalid_argument("no such bytes in the buffer");
  }
  const GpuCurrent current(&gpu_);
  check_cuda(cuda().copy_async(reinterpret_cast<CudaAddress>(out), pointer_ + offset, bytes,
                               stream_.handle()),
             "cuMemcpyAsync");
  stream_.wait();
}

void CudaSlots::launch(const Batch& batch, bool guard, unsigned flip, bool verify) {
  const auto pieces = pieces_of(batch.spans, batch.n_spans, slots_, guard);
  const PayloadFindings none{0, 0, ~0ull};
  prepared_.resize(kFindingsBytes + pieces.size() * sizeof(PayloadPiece));
  memcpy(prepared_.data(), &none, sizeof(none));
  memcpy(prepared_.data() + kFindingsBytes, pieces.data(), pieces.size() * sizeof(PayloadPiece));
  upload();
  const uint64_t units = batch.count * pieces.size();
  if (units > 0) {
    const PayloadArguments arguments{pointer_ + batch.first * slots_.stride,
                                     slots_.stride,
                                     table_->address() + kFindingsBytes,
                                     units,
                                     batch.iteration,
                                     batch.seed,
                                     ordinals_of(pieces),
                                     table_->address(),
                                     static_cast<unsigned>(pieces.size()),
                                     flip};
    const uint64_t room = uint64_t{kBlocksEach} * gpu_.facts.multiprocessors;
    gpu_.launch(verify ? gpu_.kernels().payload_verify : gpu_.kernels().payload_write,
                static_cast<unsigned>(std::min(units, room)), kThreads, &arguments,
                stream_.handle());
  }
  stream_.wait();
}

// What was prepared becomes the table.
void CudaSlots::upload() {
  if (table_ == nullptr || table_->bytes() < prepared_.size()) {
    table_ = std::make_unique<GpuMemory>(gpu_, 2 * prepared_.size());
  }
  check_cuda(cuda().copy_async(table_->address(), reinterpret_cast<CudaAddress>(prepared_.data()),
                               prepared_.size(), stream_.handle()),
             "cuMemcpyAsync");
}

PayloadFindings CudaSlots::findings_now() {
  PayloadFindings findings;
  check_cuda(cuda().copy_async(reinterpret_cast<CudaAddress>(&findings), table_->address(),
                               sizeof(findings), stream_.handle()),
             "cuMemcpyAsync");
  stream_.wait();
  return findings;
}

void CudaSlots::do_fill(const Batch& batch) {
  const GpuCurrent current(&gpu_);
  launch(batch, false, 0, false);
}

void CudaSlots::do_poison(const Batch& batch) {
  const GpuCurrent current(&gpu_);
  launch(batch, true, ~0u, false);
}

SlotVerdict CudaSlots::do_verify(const Batch& batch) {
  const GpuCurrent current(&gpu_);
  launch(batch, true, 0, true);
  return verdict_of(batch);
}

SlotVerdict CudaSlots::verdict_of(const Batch& batch) {
  const PayloadFindings findings = findings_now();
  SlotVerdict verdict;
  verdict.wrong = findings.wrong;
  verdict.guard_wrong = findings.guard_wrong;
  if (findings.wrong + findings.guard_wrong == 0) return verdict;

  const auto pieces = pieces_of(batch.spans, batch.n_spans, slots_, true);
  const PieceByte at = find_ordinal(pieces, findings.first);
  const PayloadPiece& piece = *at.piece;
  verdict.has_first = true;
  verdict.slot = batch.first + at.slot;
  verdict.offset = piece.offset + at.into;
  verdict.sender = piece.sender;
  verdict.expected = kGuardValue;
  if (piece.sender != kGuardSender) {
    const uint64_t iteration = batch.iteration + (verdict.slot - batch.first);
    payload_generate(&verdict.expected, 1, payload_key(batch.seed, piece.sender, iteration),
                     piece.sender_offset + at.into);
  }
  read(&verdict.found, verdict.slot * slots_.stride + verdict.offset, 1);
  return verdict;
}

}  // namespace tcpx
