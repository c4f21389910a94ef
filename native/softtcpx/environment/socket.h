// A file descriptor with one owner, and the few things we ask of a TCP socket.
#pragma once

#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace softtcpx {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

// A non-blocking, close-on-exec IPv4 stream socket without delay; invalid with errno set.
Fd open_stream_socket();

// Whether an errno means that this process, or the system, may have no more open files.
bool lacks_files(int error_number);

bool set_congestion(int fd, const std::string& name);
std::string congestion_of(int fd);

// What one look at a socket, without waiting, brought of a message of a known size.
enum class Heard {
  kAll,    // its last byte is there
  kPart,   // not yet
  kEnded,  // the socket ended or broke before: errno, 0 for an end
};
// `have` counts the bytes that are there.
Heard hear(int fd, uint8_t* message, uint32_t size, uint32_t* have);
// True when all of a message went out at once, as a first one on a socket always can.
bool say(int fd, const void* message, size_t size);

// Set before connect or listen, so that they hold for the first packet. An empty algorithm is the
// kernel's own, and a buffer of 0 bytes is one that it tunes.
void apply_options(int fd, const std::string& congestion, int64_t send_bytes,
                   int64_t receive_bytes);

// "192.0.2.7:4711", for the log.
std::string address_text(const sockaddr_in& address);

}  // namespace softtcpx
