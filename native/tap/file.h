// The file of this process: blocks, appended, up to a bound. What cannot be written is never waited
// for, nor does it fail anything: one line says so.
#pragma once

#include <cstdint>
#include <string>

#include "tap/layout.h"

namespace tap {

class File {
 public:
  // In `folder`, which has to be this user's own; made if there is none. `problem()` says why
  // there is no file.
  File(const std::string& folder, uint64_t most_bytes, int abi);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }
  bool full() const { return full_; }

  // False: it is not in the file, which is whole all the same.
  bool write(BlockType type, uint32_t thread, const void* content, uint64_t bytes);
  // What follows may take the room that is kept for it, however full the file is.
  void begin_last_words() { closing_ = true; }

 private:
  void create(const std::string& folder);
  bool append(const void* header, size_t header_bytes, const void* content, uint64_t bytes);

  int fd_ = -1;
  uint64_t most_bytes_, written_ = 0;
  bool full_ = false, closing_ = false;
  std::string path_, problem_;
};

}  // namespace tap
