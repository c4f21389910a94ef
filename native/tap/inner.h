// The plugin below: found as NCCL finds one, and loaded.
#pragma once

#include <string>

namespace tap {

class Inner {
 public:
  // Loads what TCPX_TAP_PLUGIN names, and looks for its table of version `abi`. `own`: the table
  // of the tap. Where there is none to use, `refusal` says why, in a line.
  Inner(int abi, const void* own);

  void* table() const { return table_; }  // nullptr: it is refused
  const std::string& path() const { return path_; }
  const std::string& refusal() const { return refusal_; }
  int code() const { return code_; }  // of an init that is refused
  // As NCCL does when its last communicator has ended; the plugin may go on to be mapped.
  void unload();

 private:
  void refuse(int code, const std::string& why);

  void* library_ = nullptr;
  void* table_ = nullptr;
  std::string path_, refusal_;
  int code_ = 0;
};

}  // namespace tap
