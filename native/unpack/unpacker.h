// Who unpacks: finished receives go in, in order, and come out when their bytes are in place.
//
// A GPU does that on its own time: the driver submits and goes on, and reads a counter. The CPU is
// done when `submit` returns; to the driver that is the same thing.
#pragma once

#include <memory>

#include "reduce/element.h"
#include "unpack/unpack.h"

namespace tcpx {

struct UnpackFailure {
  const char* call = "";  // of the driver
  int code = 0;           // 0: none
};

class Unpacker {
 public:
  virtual ~Unpacker() = default;

  // Room for as many receives between submit and finished, at most.
  virtual void reserve(size_t requests) { (void)requests; }

  // Takes one finished receive; its ticket is one more than that of the one before. The
  // result says what was received; where it is out of bounds nothing is written.
  virtual UnpackResult submit(const UnpackSource& source, uint8_t* destination,
                              uint64_t posted) = 0;

  // A copy within the memory of this rank, with a ticket like a receive.
  virtual void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) = 0;

  // What the next three compute with, until it is said anew. Not while something is under way; what
  // they need is made here. Throws CudaUnavailable, CudaError.
  virtual void prepare(const Arithmetic& arithmetic) = 0;
  // As `submit`, and each element is the reduction of the one that was received and the one in
  // `local`, which may be `destination`.
  virtual UnpackResult submit_reduce(const UnpackSource& source, const uint8_t* local,
                                     uint8_t* destination, uint64_t posted) = 0;
  // Of elements that were received in one piece; `to` may be `local`.
  virtual void reduce(const uint8_t* from, const uint8_t* local, uint8_t* to, uint64_t bytes) = 0;
  // As `copy`, scaled by the factor; `to` may be `from`.
  virtual void scale(uint8_t* to, const uint8_t* from, uint64_t bytes) = 0;

  uint64_t last_ticket() const { return tickets_; }

  // Begins with all that was submitted, at the latest now.
  virtual void flush() {}

  // Every ticket up to this one is in place.
  virtual uint64_t finished() = 0;

  // What went wrong after `submit`, if anything did: then nothing is finished any more.
  virtual UnpackFailure failure() const { return {}; }

 protected:
  uint64_t tickets_ = 0;
};

// Unpacks with the CPU, in memory that the CPU can read: the emulated kind.
std::unique_ptr<Unpacker> make_cpu_unpacker(UnpackMode mode);

// Unpacks into memory of a GPU, by that GPU. Throws CudaUnavailable, CudaError.
std::unique_ptr<Unpacker> make_cuda_unpacker(int gpu, UnpackMode mode);

}  // namespace tcpx
