#include "library/nixl/plan.h"

#include <utility>

namespace tcpx::nixl {

std::vector<Pair> coalesce(std::vector<Pair> pairs) {
  size_t kept = 0;
  for (const Pair& pair : pairs) {
    if (pair.bytes == 0) continue;
    if (kept > 0) {
      Pair& last = pairs[kept - 1];
      if (last.here_region == pair.here_region && last.there_region == pair.there_region &&
          last.here_offset + last.bytes == pair.here_offset &&
          last.there_offset + last.bytes == pair.there_offset) {
        last.bytes += pair.bytes;
        continue;
      }
    }
    pairs[kept++] = pair;
  }
  pairs.resize(kept);
  return pairs;
}

}  // namespace tcpx::nixl
