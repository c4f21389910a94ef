#include "tap/settings.h"

#include <climits>
#include <cmath>
#include <cstdlib>

namespace tap {
namespace {

constexpr double kLeastMemory = 64 << 10, kLeastFile = 4 << 10;

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value != nullptr ? value : "";
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* expected) {
  throw BadSetting(std::string(name) + " (" + value + ") is not " + expected);
}

// 64M; `least`, too, so that there is room for something.
uint64_t size_of(const char* name, double preset, double least) {
  std::string text = variable(name);
  if (text.empty()) return static_cast<uint64_t>(preset);
  const std::string value = text;
  double unit = 1;
  for (const auto& [letter, bytes] : {std::pair{'K', 0x1p10}, {'M', 0x1p20}, {'G', 0x1p30}}) {
    if (text.back() != letter) continue;
    text.pop_back();
    unit = bytes;
    break;
  }
  double number = 0;
  if (!parse_number(text, &number) || number * unit < least || number * unit > 0x1p40)
    refuse(name, value, "a size of 64K (files: 4K) to 1024G, such as 256M");
  return static_cast<uint64_t>(number * unit);
}

double number_of(const char* name) {
  const std::string text = variable(name);
  double value = 0;
  if (!text.empty() && !parse_number(text, &value)) refuse(name, text, "a number, 0 or more");
  return value;
}

int first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    double value = 0;
    if (parse_number(variable(name), &value) && value <= INT_MAX) return static_cast<int>(value);
  }
  return -1;
}

}  // namespace

bool parse_number(const std::string& text, double* value) {
  char* end = nullptr;
  if (text.empty() || (text[0] != '.' && (text[0] < '0' || text[0] > '9'))) return false;
  *value = strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(*value);
}

Settings read_settings() {
  Settings found;
  found.folder = variable("TCPX_TAP_DIR");
  found.memory_bytes = size_of("TCPX_TAP_MEMORY", 64 << 20, kLeastMemory);
  found.file_bytes = size_of("TCPX_TAP_FILES", 256 << 20, kLeastFile);
  found.slow_us = number_of("TCPX_TAP_SLOW_US");
  found.stall_s = number_of("TCPX_TAP_STALL_S");
  found.faults = variable("TCPX_TAP_FAULT");
  return found;
}

int rank_here() {
  return first_of({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"});
}

int ranks_here() {
  return first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "WORLD_SIZE"});
}

}  // namespace tap
