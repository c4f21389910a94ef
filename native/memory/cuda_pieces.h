// Spans of a slot cut into what one block of threads does, in the order in which they are judged.
#pragma once

#include <algorithm>
#include <vector>

#include "memory/payload.h"
#include "memory/payload_arguments.h"

namespace tcpx {

constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr size_t kFindingsBytes = 32;  // keeps the pieces behind them aligned
static_assert(sizeof(PayloadFindings) <= kFindingsBytes && sizeof(PayloadPiece) == 32,
              "as the kernels read them");

inline std::vector<PayloadPiece> pieces_of(const PayloadSpan* spans, size_t n_spans,
                                           const Slots& slots, bool guard) {
  std::vector<PayloadPiece> pieces;
  uint64_t ordinal = 0;
  const auto add = [&](uint64_t offset, uint64_t bytes, uint32_t sender, uint64_t sender_offset) {
    for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
      const auto length = static_cast<unsigned>(std::min<uint64_t>(bytes - at, kPieceBytes));
      pieces.push_back({offset + at, sender_offset + at, ordinal, length, sender});
      ordinal += length;
    }
  };
  for (size_t s = 0; s < n_spans; ++s) {
    add(spans[s].offset, spans[s].bytes, spans[s].sender, spans[s].sender_offset);
  }
  if (guard) add(slots.used, slots.guard, kGuardSender, 0);
  return pieces;
}

inline uint64_t ordinals_of(const std::vector<PayloadPiece>& pieces) {
  return pieces.empty() ? 0 : pieces.back().ordinal + pieces.back().bytes;
}

// Where a byte with an ordinal is: its piece, its slot from the first one on, how far into it.
struct PieceByte {
  const PayloadPiece* piece;
  uint64_t slot;
  uint64_t into;
};

inline PieceByte find_ordinal(const std::vector<PayloadPiece>& pieces, uint64_t ordinal) {
  const uint64_t ordinals = ordinals_of(pieces);
  const uint64_t in_slot = ordinal % ordinals;
  const auto after =
      std::upper_bound(pieces.begin(), pieces.end(), in_slot,
                       [](uint64_t at, const PayloadPiece& piece) { return at < piece.ordinal; });
  const PayloadPiece& piece = *std::prev(after);
  return {&piece, ordinal / ordinals, in_slot - piece.ordinal};
}

}  // namespace tcpx
