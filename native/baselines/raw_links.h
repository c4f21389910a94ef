// The connections of the raw peer: plain TCP sockets between ranks, and nothing on top of them.
//
// Set-up, not the hot path. Each rank listens once; a hello of a few bytes says who connects and
// proves that it knows the listener's token, which travelled over MPI.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace tcpx {

struct RawSettings {
  std::string interface;   // whose address is listened on, like "eth1"
  std::string congestion;  // TCP congestion control; empty: the kernel's own
  int send_buffer_bytes = 0;
  int streams = 1;       // sockets a (peer, lane)
  bool two_way = false;  // a socket carries both directions, so that acknowledgements ride along
};

class RawLinks {
 public:
  explicit RawLinks(const RawSettings& settings);
  ~RawLinks();
  RawLinks(const RawLinks&) = delete;
  RawLinks& operator=(const RawLinks&) = delete;

  // Where others connect to: to be handed to every rank as it is. Throws std::runtime_error.
  std::string listen();

  struct Neighbour {
    int peer;
    int lane;
  };
  // Connects and accepts, all polled together; `addresses` holds every rank's listen(). Throws
  // std::runtime_error on a refusal or after `timeout_s`, and Interrupt on a signal.
  void establish(int rank, const std::vector<std::string>& addresses,
                 const std::vector<Neighbour>& sends, const std::vector<Neighbour>& receives,
                 double timeout_s);

  // The socket of a stream. Throws std::invalid_argument where there is none.
  int send_socket(int peer, int lane, int stream) const;
  int receive_socket(int peer, int lane, int stream) const;
  std::vector<int> sockets() const;
  const RawSettings& settings() const { return settings_; }

 private:
  struct Stream {
    int peer;
    int lane;
    int stream;
    bool outgoing;  // this rank connected; one-way: it sends
    int fd = -1;
    size_t greeted = 0;  // bytes of the hello that are written
  };
  struct Guest {  // accepted, its hello not yet whole
    int fd;
    size_t received = 0;
    std::array<uint8_t, 32> hello{};
  };

  void plan(int rank, const std::vector<Neighbour>& sends, const std::vector<Neighbour>& receives);
  bool advance(Stream& tcp, int rank, const std::vector<std::string>& addresses);
  bool admit(Guest& guest);
  int find(int peer, int lane, int stream, bool outgoing) const;
  void tune(int fd) const;

  RawSettings settings_;
  int listener_ = -1;
  sockaddr_storage own_{};  // of the interface, without a port
  std::array<uint8_t, 16> token_{};
  std::vector<Stream> streams_;
  std::vector<Guest> guests_;
};

}  // namespace tcpx
