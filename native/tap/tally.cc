#include "tap/tally.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace tap {
namespace {

std::string scaled(double value, const char* const* units, int count, double step) {
  int unit = 0;
  while (unit + 1 < count && value >= step) value /= step, ++unit;
  char text[48];
  snprintf(text, sizeof text, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  return scaled(bytes, kUnits, 5, 1000);
}

std::string time_text(double ns) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  return scaled(ns, kUnits, 4, 1000);
}

void Times::add(double ns) {
  ns = std::max(ns, 1.0);
  // Of a double, its exponent and the first bits behind the point.
  uint64_t bits;
  memcpy(&bits, &ns, sizeof bits);
  ++counts_[std::min<uint64_t>((bits >> (52 - kStepBits)) - (1023u << kStepBits),
                               counts_.size() - 1)];
  ++total_;
  most_ = std::max(most_, ns);
}

double Times::percentile(double share) const {
  uint64_t left = static_cast<uint64_t>(std::ceil(share * static_cast<double>(total_)));
  for (size_t step = 0; step < counts_.size(); ++step) {
    if (counts_[step] >= left) {
      const double part = 1 + (static_cast<double>(step % kSteps) + 0.5) / kSteps;
      return std::min(std::ldexp(part, static_cast<int>(step / kSteps)), most_);
    }
    left -= counts_[step];
  }
  return most_;
}

void Tally::add(const Record& record, double ns_a_tick) {
  switch (record.kind) {
    case kSend:
    case kReceive: {
      posted_ += record.part == 0;
      bytes_ += record.bytes;
      const int power = record.bytes == 0 ? 0 : 64 - __builtin_clzll(record.bytes);
      ++sizes_[power];
      break;
    }
    case kDone: {
      ++done_;
      const double took = record.took * ns_a_tick, plugin = record.plugin * ns_a_tick;
      took_.add(took);
      took_ns_ += took;
      plugin_ns_ += std::min(plugin, took);
      between_polls_.add(std::max(took - plugin, 0.0) / std::max(record.word, 1));
      break;
    }
    case kError:
      ++errors_;
      break;
    default:
      break;
  }
}

std::string Tally::text() const {
  std::string text = std::to_string(posted_) + " requests of " +
                     bytes_text(static_cast<double>(bytes_)) + ", " + std::to_string(done_) +
                     " done";
  if (errors_ > 0) text += ", " + std::to_string(errors_) + " errors";
  const char* before = "; sizes below ";
  for (size_t power = 0; power < sizes_.size(); ++power) {
    if (sizes_[power] == 0) continue;
    text += before + std::to_string(power < 64 ? uint64_t{1} << power : ~uint64_t{0}) + ": " +
            std::to_string(sizes_[power]);
    before = ", ";
  }
  if (done_ == 0) return text;
  const double share = took_ns_ > 0 ? 100 * plugin_ns_ / took_ns_ : 0;
  return text + "; post to done p50 " + time_text(took_.percentile(0.5)) + ", p99 " +
         time_text(took_.percentile(0.99)) + ", max " + time_text(took_.most()) + ", " +
         std::to_string(std::lround(share)) +
         " % of it within the plugin's calls; between the caller's polls p50 " +
         time_text(between_polls_.percentile(0.5)) + ", p99 " +
         time_text(between_polls_.percentile(0.99));
}

}  // namespace tap
