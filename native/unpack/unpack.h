// Gathering what a plugin scattered: a finished receive lies as fragments in a bounce buffer,
// listed in a queue of descriptors. It is reassembled at its destination before it is consumed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "net/abi_v7.h"
#include "reduce/element.h"

namespace tcpx {

// Where the fragments of one finished receive are, as the plugin left them.
struct UnpackSource {
  const NetUnpackFragment* fragments;
  uint64_t count;
  const uint8_t* bounce;
};

// The k-th receive of a comm, empty ones counted, has slot k % 16 of the comm's queue. An empty one
// has no fragments, whatever its slot says: a plugin writes a count when a request's first chunk
// comes, and none came.
UnpackSource unpack_source(const NetUnpackDevice& device, uint64_t sequence, uint64_t posted);

enum class UnpackMode : int {
  kKernel = 0,   // one pass over all fragments; the CPU reference where there is no GPU
  kCopies = 1,   // one copy a fragment ("d2d")
  kHost = 2,     // down to a staging buffer, gathered there, up again
  kNone = 3,     // nothing is moved: an ablation, whose bytes are wrong
  kStaying = 4,  // as kKernel, and small receives by a kernel that stays for a while
};

struct UnpackResult {
  uint64_t bytes;  // sum of the fragments' lengths, out of bounds too: what was received
  bool in_bounds;  // false: a fragment ends beyond `posted` bytes, and nothing was written
  bool pages;      // all offsets and lengths are multiples of 16, and no length is over kUnpackPage
};

// The specification of every other way to unpack: fragment i is fragments[i].len bytes from
// bounce + src_off to destination + dst_off; any alignment, any order, a length down to 1, none at
// all. Writes nothing if a fragment would end beyond `posted` bytes.
UnpackResult unpack_reference(const UnpackSource& source, uint8_t* destination, uint64_t posted);

// The specification of every other way to reduce received fragments: an element of `destination` is
// the reduction of the fragments' element and that of `local`, which may be `destination`. An
// element may lie in several fragments; one of which a byte is missing stays as it is. `posted` is
// a whole number of elements.
UnpackResult reduce_fragments(const Arithmetic& arithmetic, const UnpackSource& source,
                              const uint8_t* local, uint8_t* destination, uint64_t posted);

// The same without writing: what was received, and whether it fits.
UnpackResult unpack_bounds(const UnpackSource& source, uint64_t posted);

}  // namespace tcpx
