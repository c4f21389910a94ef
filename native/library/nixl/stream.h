// A TCP connection of the control stream: frames in, frames out, nothing that waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "library/nixl/wire.h"

namespace tcpx::nixl {

// A socket that is closed with its owner.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(Socket&& from) noexcept : fd_(from.fd_) { from.fd_ = -1; }
  Socket& operator=(Socket&& from) noexcept;
  int fd() const { return fd_; }
  void reset(int fd = -1);

 private:
  int fd_;
};

enum class DialStage { kConnecting, kConnected, kFailed };

class Stream {
 public:
  // `patience`: how long a peer that takes no bytes is borne, 20 s at least.
  explicit Stream(std::chrono::milliseconds patience) : patience_(patience) {}
  Stream(Socket connected, std::chrono::milliseconds patience);

  // Begins to connect; false: not even that, `why` says why.
  bool dial(const std::string& address, uint16_t port, std::string* why);
  DialStage dialed(std::string* why);

  // Reads what is there, at most about 1 MiB. False: the other side is gone; what it sent before is
  // in `reader` all the same.
  bool read(std::string* why);
  FrameReader& reader() { return reader_; }

  // Frames are appended here, and sent by flush.
  std::string& out() { return out_; }
  size_t backlog() const { return out_.size() - sent_; }
  // Sends what the socket takes; false: the other side is gone.
  bool flush(std::string* why);
  // Sends the rest, for `patience_ms` at most, and says that no more comes.
  void finish(int patience_ms);

  int fd() const { return socket_.fd(); }
  void close() { socket_.reset(); }

 private:
  Socket socket_;
  std::chrono::milliseconds patience_;
  FrameReader reader_;
  std::string out_;
  size_t sent_ = 0;
};

}  // namespace tcpx::nixl
