// What is said of a comm: counts, sizes, times. Made of records, away from the calls.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tap/layout.h"

namespace tap {

// Times by eighths of their power of two, so that a percentile is within 7 % of the real one.
class Times {
 public:
  void add(double ns);
  double percentile(double share) const;  // ns
  double most() const { return most_; }

 private:
  static constexpr int kStepBits = 3, kSteps = 1 << kStepBits;
  std::array<uint32_t, 44 * kSteps> counts_{};
  uint64_t total_ = 0;
  double most_ = 0;
};

class Tally {
 public:
  void add(const Record& record, double ns_a_tick);
  uint64_t requests() const { return done_; }
  // "1200 requests of 1.2 GB; sizes ...".
  std::string text() const;

 private:
  uint64_t posted_ = 0, done_ = 0, errors_ = 0, bytes_ = 0;
  std::array<uint64_t, 65> sizes_{};  // posted, by their power of two
  Times took_, between_polls_;
  double took_ns_ = 0, plugin_ns_ = 0;
};

std::string bytes_text(double bytes);  // 1.2 GB
std::string time_text(double ns);      // 31 us

}  // namespace tap
