// Looks on while another unpacks, and remembers what lay in the queue and in the bounce buffer:
// both are gone once a receive is consumed. For people who ask what the plugin delivered; it
// allocates.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "unpack/unpacker.h"

namespace tcpx {

class UnpackWitness final : public Unpacker {
 public:
  static constexpr size_t kFragments = 8;  // remembered of a receive
  static constexpr size_t kProbeBytes = 32;

  struct Sight {
    const NetUnpackFragment* slot;  // where the plugin listed them: tells the comm
    uint64_t count;
    std::vector<NetUnpackFragment> fragments;  // the first ones
    std::vector<uint8_t> probe;                // the first bytes of the first one
  };

  // `fetch` reads the bounce buffer, which may be memory of a GPU.
  using Fetch = void (*)(void* to, const void* from, size_t bytes);
  explicit UnpackWitness(std::unique_ptr<Unpacker> inner, Fetch fetch = &from_host)
      : inner_(std::move(inner)), fetch_(fetch) {}

  UnpackResult submit(const UnpackSource& source, uint8_t* destination, uint64_t posted) override {
    sights_.push_back(look(source));
    const UnpackResult result = inner_->submit(source, destination, posted);
    tickets_ = inner_->last_ticket();
    return result;
  }
  void reserve(size_t requests) override { inner_->reserve(requests); }
  void copy(uint8_t* to, const uint8_t* from, uint64_t bytes) override {
    inner_->copy(to, from, bytes);
    tickets_ = inner_->last_ticket();
  }
  void prepare(const Arithmetic& arithmetic) override { inner_->prepare(arithmetic); }
  UnpackResult submit_reduce(const UnpackSource& source, const uint8_t* local, uint8_t* destination,
                             uint64_t posted) override {
    sights_.push_back(look(source));
    const UnpackResult result = inner_->submit_reduce(source, local, destination, posted);
    tickets_ = inner_->last_ticket();
    return result;
  }
  void reduce(const uint8_t* from, const uint8_t* local, uint8_t* to, uint64_t bytes) override {
    inner_->reduce(from, local, to, bytes);
    tickets_ = inner_->last_ticket();
  }
  void scale(uint8_t* to, const uint8_t* from, uint64_t bytes) override {
    inner_->scale(to, from, bytes);
    tickets_ = inner_->last_ticket();
  }
  void flush() override { inner_->flush(); }
  uint64_t finished() override { return inner_->finished(); }
  UnpackFailure failure() const override { return inner_->failure(); }

  // What was seen since the last time.
  std::vector<Sight> take() { return std::exchange(sights_, {}); }

 private:
  Sight look(const UnpackSource& source) const {
    Sight sight{source.fragments, source.count, {}, {}};
    const size_t shown = std::min<uint64_t>(source.count, kFragments);
    sight.fragments.assign(source.fragments, source.fragments + shown);
    if (shown > 0) {
      const uint8_t* first = source.bounce + source.fragments[0].src_off;
      const size_t bytes = std::min<size_t>(source.fragments[0].len, kProbeBytes);
      sight.probe.resize(bytes);
      fetch_(sight.probe.data(), first, bytes);
    }
    return sight;
  }

  static void from_host(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }

  std::unique_ptr<Unpacker> inner_;
  const Fetch fetch_;
  std::vector<Sight> sights_;
};

}  // namespace tcpx
