// What the targets share: a reader of the bytes they are given, and a claim that ends the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Not an assert: it holds in every build.
#define REQUIRE(claim)                                                         \
  do {                                                                         \
    if (!(claim)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
      std::abort();                                                            \
    }                                                                          \
  } while (false)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fuzz {

// Reads past the end give zeros, so that an input that was cut is an input too.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  size_t left() const { return left_; }

  template <class T>
  T take() {
    T value{};
    take(&value, sizeof value);
    return value;
  }
  void take(void* target, size_t bytes) {
    if (bytes == 0) return;  // an empty vector has no address
    const size_t there = std::min(bytes, left_);
    std::memset(target, 0, bytes);
    if (there > 0) std::memcpy(target, at_, there);
    at_ += there;
    left_ -= there;
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

template <class A, class B>
bool same_bytes(const A& a, const B& b) {
  static_assert(sizeof a == sizeof b, "of one size");
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace fuzz
