// What the environment asks of the tap.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tap {

// A variable has a value that means nothing: one line.
class BadSetting : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Settings {
  std::string folder;         // TCPX_TAP_DIR; none: nothing is written down
  uint64_t memory_bytes = 0;  // TCPX_TAP_MEMORY: of all rings
  uint64_t file_bytes = 0;    // TCPX_TAP_FILES: of this process's file
  double slow_us = 0;         // TCPX_TAP_SLOW_US; 0: nobody is told
  double stall_s = 0;         // TCPX_TAP_STALL_S; 0: nobody is told
  std::string faults;         // TCPX_TAP_FAULT
};

Settings read_settings();  // throws BadSetting

// A number, whole and at least 0, or not.
bool parse_number(const std::string& text, double* value);

// The launcher's numbers of this process; -1: none says.
int rank_here();
int ranks_here();

}  // namespace tap
