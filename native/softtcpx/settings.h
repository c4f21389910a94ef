// What softtcpx reads from the environment: once, at init, each setting declared in one table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace softtcpx {

constexpr int kMaxSockets = 8;  // data sockets of one connection
constexpr int kMaxThreads = 8;  // workers of one device

struct Settings {
  // As the environment asks for them.
  int64_t sockets_per_thread = 0;
  int64_t threads = 0;
  int64_t chunk_bytes = 0;
  int64_t send_buffer_bytes = 0;     // 0: the kernel tunes it
  int64_t receive_buffer_bytes = 0;  // 0: the kernel tunes it
  int64_t connect_timeout_ms = 0;
  int64_t answer_timeout_ms = 0;
  int64_t direct_sockets = 0;
  int64_t spin_us = 0;
  std::string congestion;  // empty: the kernel's own default
  std::string data_interfaces;
  std::string socket_interfaces;

  // What follows from them.
  int sockets = 1;  // data sockets of a connection that this side listens for

  // One line a setting for the log: name, value, source, reason.
  std::vector<std::string> description;
};

// How many data sockets a listener asks for; never 0, whatever is asked.
int socket_count(int64_t sockets_per_thread, int64_t threads);

// Reads the environment and asks the kernel which of the socket options it grants. A value that is
// no number or out of range is reported by a warning, and the default is used in its place.
Settings load_settings();

}  // namespace softtcpx
