// The sending side of a connection: messages cut into pieces, each behind a header of its own.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>

#include "softtcpx/comm.h"
#include "softtcpx/wire.h"

namespace softtcpx {

class SendComm final : public Comm {
 public:
  SendComm(Device& device, Sockets sockets);
  ~SendComm() override { leave_owner(); }

  int send(void* data, int64_t bytes, const Region* region, void** request) {
    return post(data, bytes, region, request);
  }

 private:
  // What a socket is carrying: a large piece, or several small ones in one system call.
  struct Load {
    static constexpr int kPieces = 8;

    bool empty() const { return first == parts; }
    void add(const ChunkHeader& header, const uint8_t* data, Request* request);
    void sent(size_t bytes);

    int first = 0, parts = 0, pieces = 0;
    std::array<ChunkHeader, kPieces> headers;
    std::array<iovec, 2 * kPieces> iov;
    std::array<Request*, 2 * kPieces> finishes;  // the request that has one piece less after it
  };

  void prepare(Request& request, uint64_t bytes) override;
  Step step(int socket) override;
  void judge_losses(bool) override;
  void exchange_credits() override;
  bool take_control(const uint8_t* bytes, size_t count) override;
  uint64_t oldest_unfreed() const override { return ring_.seen; }

  void fill(Load& load);

  const uint64_t chunk_bytes_;
  uint64_t next_ = 0;  // the oldest request of which no socket has all pieces yet
  std::unique_ptr<Load[]> loads_;

  uint64_t granted_;  // receives that the peer has posted; without RECV_SYNC: no limit
  uint32_t have_ = 0;
  uint8_t credit_[sizeof(Credit)];  // its first `have_` bytes
};

}  // namespace softtcpx
