// What a kernel that stays is told: letters in page-locked memory, a list of copies each. Read by
// the CPU's compiler and by NVRTC; the engine and softtcpx each have such kernels of their own.
//
// A copy is two words, which the kernel reads whole, in any order and perhaps not all at one time:
// so each says which letter it belongs to. A place in memory has 48 bits.
#pragma once

#include "cuda/host_device.h"

namespace tcpx {

constexpr unsigned kLetters = 64;      // places, used again and again: a power of two
constexpr unsigned kLetterLines = 32;  // of 16 bytes: the first says how many follow, and
                                       // what is told when they are done
constexpr unsigned kMostCopies = kLetterLines - 1;
constexpr unsigned kLetterBytes = kLetterLines * 16;
constexpr unsigned kMostCopyBytes = (1u << 14) - 1;  // of one of them
constexpr unsigned kStayingThreads = 512;

struct StayingArguments {
  unsigned long long letters;  // in page-locked memory, as are the next three
  unsigned long long told_at;  // u64: what the last letter that is done has to be told
  unsigned long long done_at;  // u64: letters that are done, perhaps behind that
  unsigned long long gone_at;  // u64: `generation`, once the kernel looks at no letter any more
  unsigned long long first;    // letter that it begins with
  unsigned long long generation;
  unsigned long long linger_ns;  // without a letter
  unsigned long long stay_ns;    // in all: whoever waits for all that the GPU does waits no longer
};

struct LetterLine {
  unsigned long long from, to;
};

// Marks of letters in one place come again after so many. Never 0, which an unused line has.
constexpr unsigned kMarks = 511;
TCPX_HOST_DEVICE constexpr unsigned long long mark_of(unsigned long long letter) {
  return 1 + letter / kLetters % kMarks;
}

constexpr unsigned kPlaceBits = 48, kHalfBits = 7, kMarkShift = kPlaceBits + kHalfBits;
constexpr unsigned long long kPlaceMask = (1ull << kPlaceBits) - 1;
constexpr unsigned kHalfMask = (1u << kHalfBits) - 1;

TCPX_HOST_DEVICE constexpr LetterLine letter_line(unsigned long long letter,
                                                  unsigned long long from, unsigned long long to,
                                                  unsigned bytes) {
  const unsigned long long low = bytes & kHalfMask, high = bytes >> kHalfBits;
  return {from | low << kPlaceBits | mark_of(letter) << kMarkShift,
          to | high << kPlaceBits | mark_of(letter) << kMarkShift};
}
TCPX_HOST_DEVICE constexpr unsigned long long place_in(unsigned long long word) {
  return word & kPlaceMask;
}
TCPX_HOST_DEVICE constexpr unsigned bytes_in(unsigned long long from, unsigned long long to) {
  return static_cast<unsigned>(from >> kPlaceBits & kHalfMask) |
         static_cast<unsigned>(to >> kPlaceBits & kHalfMask) << kHalfBits;
}
TCPX_HOST_DEVICE constexpr bool is_of(unsigned long long word, unsigned long long letter) {
  return word >> kMarkShift == mark_of(letter);
}

}  // namespace tcpx
