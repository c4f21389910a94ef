// Copies what letters ask for, as they come, for a while: a launch for each would take longer than
// the copy.
#include "cuda/moves.h"
#include "staying/letter.h"

namespace tcpx {
namespace {

struct Desk {
  u64 letter;       // that comes next
  u64 began, last;  // ns: the kernel, and its last letter
  Words lines[kLetterLines];
  u32 arrived;  // a bit each
  u32 gone;
};

// All warps come to the same answer: the last of the lines may be here before the first.
__device__ __forceinline__ bool has_come(const Desk& desk) {
  if ((desk.arrived & 1) == 0) return false;
  const u64 copies = place_in(desk.lines[0].a);
  const u32 wanted = copies < kMostCopies ? (2u << copies) - 1 : 0xffffffffu;
  return (desk.arrived & wanted) == wanted;
}

__device__ __forceinline__ void sit_down(const StayingArguments& a, Desk& desk) {
  if (threadIdx.x > 0) return;
  desk.letter = a.first;
  desk.began = desk.last = now_ns();
  desk.arrived = desk.gone = 0;
}

__device__ __forceinline__ bool stays(const Desk& desk) { return desk.gone == 0; }

__device__ __forceinline__ void look(const StayingArguments& a, Desk& desk) {
  const u32 lane = threadIdx.x;
  if (lane >= kLetterLines) return;
  const u64 at = a.letters + desk.letter % kLetters * kLetterBytes + lane * sizeof(Words);
  const Words line = load_words_of_host(at);
  desk.lines[lane] = line;
  vote(desk.arrived, is_of(line.a, desk.letter) && is_of(line.b, desk.letter));
}

__device__ __forceinline__ void copy(const StayingArguments&, Desk& desk) {
  if (!has_come(desk)) return;
  const u32 copies = static_cast<u32>(place_in(desk.lines[0].a));
  for (u32 i = threadIdx.x / 32; i < copies; i += blockDim.x / 32) {
    const Words line = desk.lines[1 + i];
    move(place_in(line.a), place_in(line.b), bytes_in(line.a, line.b), threadIdx.x % 32);
  }
}

__device__ __forceinline__ void tell(const StayingArguments& a, Desk& desk) {
  if (threadIdx.x > 0) return;
  const u64 now = now_ns();
  if (has_come(desk)) {
    store8_for_host(a.told_at, place_in(desk.lines[0].b));
    store8(a.done_at, ++desk.letter);
    desk.last = now;
  } else if (now - desk.last <= a.linger_ns) {
    return;
  }
  if (now - desk.last <= a.linger_ns && now - desk.began <= a.stay_ns) return;
  desk.gone = 1;
  store8_for_host(a.gone_at, a.generation);
}

}  // namespace

TCPX_STAYING_KERNEL(stay_and_copy, StayingArguments, Desk, sit_down, stays, look, copy, tell)

}  // namespace tcpx
