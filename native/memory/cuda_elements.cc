#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "cuda/gpu.h"
#include "cuda/sources.h"
#include "memory/cuda_pieces.h"
#include "memory/cuda_slots.h"
#include "memory/element_arguments.h"

namespace tcpx {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksEach = 8;  // of a multiprocessor

// The keys of all slots of a batch, one behind the other.
std::vector<uint64_t> keys_of(const ElementGroup& group, uint64_t seed, uint64_t iteration,
                              size_t count) {
  std::vector<uint64_t> all;
  for (size_t k = 0; k < count; ++k) {
    const auto keys = element_keys(group, seed, iteration + k);
    all.insert(all.end(), keys.begin(), keys.end());
  }
  return all;
}

}  // namespace

void CudaSlots::launch_elements(const Batch& batch, const ElementGroup& group, bool guard,
                                unsigned flip, bool inputs, const char* kernel) {
  if (slots_.stride % group.bytes() != 0) {
    throw std::invalid_argument("slots of " + std::to_string(slots_.stride) +
                                " bytes are not made of whole elements");
  }
  const auto pieces = pieces_of(batch.spans, batch.n_spans, slots_, guard);
  const auto keys = keys_of(group, batch.seed, batch.iteration, batch.count);
  const PayloadFindings none{0, 0, ~0ull};
  const size_t keys_at = kFindingsBytes + pieces.size() * sizeof(PayloadPiece);
  prepared_.resize(keys_at + keys.size() * sizeof(uint64_t));
  memcpy(prepared_.data(), &none, sizeof(none));
  memcpy(prepared_.data() + kFindingsBytes, pieces.data(), pieces.size() * sizeof(PayloadPiece));
  memcpy(prepared_.data() + keys_at, keys.data(), keys.size() * sizeof(uint64_t));
  upload();
  ElementArguments arguments{};
  arguments.base = pointer_ + batch.first * slots_.stride;
  arguments.stride = slots_.stride;
  arguments.table = table_->address() + kFindingsBytes;
  arguments.keys = table_->address() + keys_at;
  arguments.units = batch.count * pieces.size();
  arguments.ordinals = ordinals_of(pieces);
  arguments.verdict = table_->address();
  arguments.keys_each = static_cast<unsigned>(keys.size() / std::max<size_t>(batch.count, 1));
  arguments.pieces = static_cast<unsigned>(pieces.size());
  arguments.flip = flip;
  arguments.inputs = inputs;
  arguments.rule = group.rule;
  if (arguments.units > 0) {
    const uint64_t room = uint64_t{kBlocksEach} * gpu_.facts.multiprocessors;
    gpu_.launch(gpu_.function(kElementsSource, kernel),
                static_cast<unsigned>(std::min<uint64_t>(arguments.units, room)), kThreads,
                &arguments, stream_.handle());
  }
  stream_.wait();
}

void CudaSlots::do_fill(const Batch& batch, const ElementGroup& group) {
  const GpuCurrent current(&gpu_);
  launch_elements(batch, group, false, 0, true, "elements_write");
}

void CudaSlots::do_poison(const Batch& batch, const ElementGroup& group) {
  const GpuCurrent current(&gpu_);
  launch_elements(batch, group, true, ~0u, false, "elements_write");
}

ElementVerdict CudaSlots::do_verify(const Batch& batch, const ElementGroup& group) {
  const GpuCurrent current(&gpu_);
  launch_elements(batch, group, true, 0, false, "elements_verify");
  const PayloadFindings findings = findings_now();
  ElementVerdict verdict;
  verdict.wrong = findings.wrong;
  verdict.guard_wrong = findings.guard_wrong;
  if (findings.wrong + findings.guard_wrong == 0) return verdict;

  const auto pieces = pieces_of(batch.spans, batch.n_spans, slots_, true);
  const PieceByte at = find_ordinal(pieces, findings.first);
  verdict.has_first = true;
  verdict.slot = batch.first + at.slot;
  verdict.offset = at.piece->offset + at.into;
  verdict.in_guard = at.piece->sender == kGuardSender;
  verdict.sender = kNoSender;
  const size_t bytes = verdict.in_guard ? 1 : group.bytes();
  uint8_t found[8] = {};
  read(found, verdict.slot * slots_.stride + verdict.offset, bytes);
  memcpy(&verdict.found, found, sizeof(found));
  verdict.expected = kGuardValue;
  if (verdict.in_guard) return verdict;
  verdict.element = (at.piece->sender_offset + at.into) / bytes;
  const auto keys = element_keys(group, batch.seed, batch.iteration + at.slot);
  if (group.rule.kind == kAsPayload) {
    verdict.sender = at.piece->sender;
    verdict.expected = payload_element(group.rule.type, keys[at.piece->sender], verdict.element);
  } else {
    verdict.expected = element_result(group.rule, keys.data(), verdict.element);
  }
  return verdict;
}

}  // namespace tcpx
