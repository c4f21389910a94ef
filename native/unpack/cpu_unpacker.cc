#include <cstring>
#include <vector>

#include "reduce/reduce.h"
#include "unpack/unpacker.h"

namespace tcpx {
namespace {

constexpr size_t kMostBytes = size_t{2} << 20;  // of a request

class CpuUnpacker : public Unpacker {
 public:
  explicit CpuUnpacker(UnpackMode mode)
      : mode_(mode == UnpackMode::kStaying ? UnpackMode::kKernel : mode) {}

  UnpackResult submit(const UnpackSource& source, uint8_t* destination, uint64_t posted) override {
    ++tickets_;
    switch (mode_) {
      case UnpackMode::kKernel:
        return unpack_reference(source, destination, posted);
      case UnpackMode::kCopies:
        return copies(source, destination, posted);
      case UnpackMode::kHost:
        return through_host(source, destination, posted);
      case UnpackMode::kStaying:
      case UnpackMode::kNone:
        break;
    }
    return unpack_bounds(source, posted);
  }

  void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) override {
    ++tickets_;
    memcpy(to, from, bytes);
  }

  void prepare(const Arithmetic& arithmetic) override {
    arithmetic_ = arithmetic;
    if (mode_ == UnpackMode::kCopies || mode_ == UnpackMode::kHost) landing_.resize(kMostBytes);
  }

  UnpackResult submit_reduce(const UnpackSource& source, const uint8_t* local, uint8_t* destination,
                             uint64_t posted) override {
    ++tickets_;
    if (mode_ == UnpackMode::kKernel) {
      return reduce_fragments(arithmetic_, source, local, destination, posted);
    }
    if (mode_ == UnpackMode::kNone) return unpack_bounds(source, posted);
    // In two passes, as where copies are all that there is.
    const UnpackResult result = mode_ == UnpackMode::kCopies
                                    ? copies(source, landing_.data(), posted)
                                    : through_host(source, landing_.data(), posted);
    if (result.in_bounds) tcpx::reduce(arithmetic_, landing_.data(), local, destination, posted);
    return result;
  }

  void reduce(const uint8_t* from, const uint8_t* local, uint8_t* to, uint64_t bytes) override {
    ++tickets_;
    tcpx::reduce(arithmetic_, from, local, to, bytes);
  }

  void scale(uint8_t* to, const uint8_t* from, uint64_t bytes) override {
    ++tickets_;
    tcpx::scale(arithmetic_, from, to, bytes);
  }

  uint64_t finished() override { return tickets_; }

 private:
  // One call of a copy routine a fragment, as one device copy a fragment would be.
  UnpackResult copies(const UnpackSource& source, uint8_t* destination, uint64_t posted) {
    const UnpackResult result = unpack_bounds(source, posted);
    for (uint64_t i = 0; result.in_bounds && i < source.count; ++i) {
      const NetUnpackFragment& fragment = source.fragments[i];
      copy_(destination + fragment.dst_off, source.bounce + fragment.src_off, fragment.len);
    }
    return result;
  }

  // Down fragment by fragment, gathered in a staging buffer, up in one piece a stretch.
  UnpackResult through_host(const UnpackSource& source, uint8_t* destination, uint64_t posted) {
    const UnpackResult result = unpack_bounds(source, posted);
    if (!result.in_bounds) return result;
    if (staging_.size() < posted) staging_.resize(posted);
    // What no fragment covers must stay as it is at the destination.
    memcpy(staging_.data(), destination, posted);
    for (uint64_t i = 0; i < source.count; ++i) {
      const NetUnpackFragment& fragment = source.fragments[i];
      memcpy(staging_.data() + fragment.dst_off, source.bounce + fragment.src_off, fragment.len);
    }
    memcpy(destination, staging_.data(), posted);
    return result;
  }

  UnpackMode mode_;
  Arithmetic arithmetic_;
  // Through a pointer, so that the compiler cannot make one copy out of many.
  void* (*volatile copy_)(void*, const void*, size_t) = &memcpy;
  std::vector<uint8_t> staging_ = std::vector<uint8_t>(kMostBytes);
  std::vector<uint8_t> landing_;
};

}  // namespace

std::unique_ptr<Unpacker> make_cpu_unpacker(UnpackMode mode) {
  return std::make_unique<CpuUnpacker>(mode);
}

}  // namespace tcpx
