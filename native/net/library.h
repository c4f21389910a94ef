// Finding the plugin's table in a shared library.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "net/net.h"
#include "net/plugin_error.h"

namespace tcpx {

// The file is not there, cannot be mapped, or holds no table that we can read.
class LibraryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A table in which entries are NULL that every plugin must have.
class IncompleteTable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Versions that we can drive, the oldest first.
const std::vector<int>& known_abi_versions();

// A plugin in this process. It is never unloaded: plugins leave threads and exit handlers behind.
class Plugin {
 public:
  // Maps `path` (a path, or a name for the dynamic linker) with its symbols kept to itself. Its
  // newest table that we can drive is used, or that of version `abi` (0: the newest).
  explicit Plugin(const std::string& path, int abi = 0);

  const std::string& path() const { return path_; }                       // of the file as mapped
  const std::vector<int>& abi_versions() const { return abi_versions_; }  // found in the file
  Net& net() { return *net_; }

  // As NCCL of that version does. Up to v10: once a process; a second call, also after a failure,
  // throws. From v11 on: once for each Plugin, which is a communicator's context then.
  // `traffic_class` of its connections: -1 for none, and in versions that have none.
  void init(int traffic_class = -1);
  bool initialised() const { return initialised_; }
  // The end of that context, when its comms are closed; nothing in versions that have none.
  void finalize();

 private:
  std::string path_;
  std::vector<int> abi_versions_;
  std::unique_ptr<Net> net_;
  bool initialised_ = false;
};

}  // namespace tcpx
