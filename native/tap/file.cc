#include "tap/file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tap {
namespace {

// Of the last lines, behind records that have filled the file.
constexpr uint64_t kReserve = 2048;
constexpr uint64_t kLastWords = 256;  // an object and a ClockPair
constexpr int kMostNames = 10'000;

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  for (char* letter = name; *letter != '\0'; ++letter) {
    if (strchr("/ ", *letter) != nullptr || *letter < ' ') *letter = '_';
  }
  return name;
}

}  // namespace

File::File(const std::string& folder, uint64_t most_bytes, int abi) : most_bytes_(most_bytes) {
  create(folder);
  if (fd_ < 0) return;
  FileHeader header{};
  memcpy(header.magic, kMagic, sizeof header.magic);
  header.record_bytes = sizeof(Record);
  header.abi = static_cast<uint32_t>(abi);
  append(&header, sizeof header, nullptr, 0);
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

void File::create(const std::string& folder) {
  mkdir(folder.c_str(), 0700);  // or there is one
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const int directory = open(folder.c_str(), flags);
  struct stat found {};
  if (directory < 0 || fstat(directory, &found) != 0) {
    problem_ = folder + ": " + strerror(errno);
    if (directory >= 0) close(directory);
    return;
  }
  if (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    problem_ = folder + ": others may write there: use a folder of your own (chmod go-w)";
    close(directory);
    return;
  }
  const std::string name = "tap-" + host_name() + "-" + std::to_string(getpid());
  for (int i = 0; i < kMostNames && fd_ < 0; ++i) {
    const std::string tried = name + (i > 0 ? "-" + std::to_string(i) : "") + ".tap";
    const int how = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    fd_ = openat(directory, tried.c_str(), how, 0600);
    path_ = folder + "/" + tried;
    if (fd_ < 0 && errno != EEXIST) break;
  }
  if (fd_ < 0) problem_ = path_ + ": " + strerror(errno);
  close(directory);
}

bool File::write(BlockType type, uint32_t thread, const void* content, uint64_t bytes) {
  if (fd_ < 0) return false;
  const Block block{kBlockMagic, type, thread, static_cast<uint32_t>(bytes)};
  const uint64_t reserve = type == kRecords ? kReserve : closing_ ? 0 : kLastWords;
  if (written_ + sizeof block + bytes + reserve > most_bytes_) {
    full_ = full_ || type == kRecords;
    return false;
  }
  return append(&block, sizeof block, content, bytes);
}

bool File::append(const void* header, size_t header_bytes, const void* content, uint64_t bytes) {
  iovec parts[] = {{const_cast<void*>(header), header_bytes},
                   {const_cast<void*>(content), static_cast<size_t>(bytes)}};
  const uint64_t before = written_;
  for (iovec* part = parts; part != parts + 2;) {
    const ssize_t n = writev(fd_, part, static_cast<int>(parts + 2 - part));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || (n == 0 && part->iov_len > 0)) {
      problem_ = path_ + ": " + strerror(n < 0 ? errno : ENOSPC);
      // Without the half of a block; what is there is read.
      if (ftruncate(fd_, static_cast<off_t>(before)) != 0) problem_ += ", and cannot be cut off";
      close(fd_);
      fd_ = -1;
      return false;
    }
    written_ += static_cast<uint64_t>(n);
    auto left = static_cast<size_t>(n);
    while (part != parts + 2 && left >= part->iov_len) left -= (part++)->iov_len;
    if (part != parts + 2) {
      part->iov_base = static_cast<char*>(part->iov_base) + left;
      part->iov_len -= left;
    }
  }
  return true;
}

}  // namespace tap
