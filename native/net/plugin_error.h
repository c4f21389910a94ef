// What a plugin refused, as an exception.
#pragma once

#include <stdexcept>
#include <string>

namespace tcpx {

// A plugin refused a call: which, with what code, in what circumstances.
class PluginError : public std::runtime_error {
 public:
  PluginError(const std::string& call, int code, const std::string& what);
  int code() const { return code_; }

 protected:
  PluginError(const std::string& text, int code) : std::runtime_error(text), code_(code) {}

 private:
  int code_;
};

// It let an exception of C++ out, which NCCL, a caller in C, could not catch.
class PluginThrew : public PluginError {
 public:
  PluginThrew(const std::string& call, const std::string& thrown, const std::string& what);
};

}  // namespace tcpx
