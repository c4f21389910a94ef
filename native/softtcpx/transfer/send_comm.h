// The sending side of a connection: messages cut into pieces, each behind a header of its own.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>

#include "softtcpx/gpu/copy_ring.h"
#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/comm.h"
#include "softtcpx/transfer/lender.h"

namespace softtcpx {

class SendComm final : public Comm {
 public:
  SendComm(Device& device, Sockets sockets);
  ~SendComm() override { leave_owner(); }

  // GPU memory only once it is served.
  int send(void* data, int64_t bytes, const Region* region, void** request, int tag = 0);
  bool copies_gpu_memory() const { return copies() != nullptr; }
  bool serve_gpu_memory(const Gpu& gpu) override;
  // Ends the connection, behind the last byte of all that test said done of; an error where the
  // peer does not take them.
  int finish();

 private:
  // What a socket is carrying: a large piece, or several small ones in one system call, or the
  // header of a piece that is lent, and behind it that.
  struct Load {
    static constexpr int kPieces = 8;

    bool empty() const { return first == parts && lender.empty(); }
    void add(const ChunkHeader& header, const uint8_t* data, Request* request,
             CopyRing::Piece* copied);
    void lend(const ChunkHeader& header, Request& request, CopyRing::Piece& copied);
    void sent(size_t bytes, CopyRing* ring);

    int first = 0, parts = 0, pieces = 0;
    std::array<ChunkHeader, kPieces> headers;
    std::array<iovec, 2 * kPieces> iov;
    struct End {
      Request* request;         // whose piece ends with this part; none: the piece goes on
      uint64_t bytes;           // that it has left less then
      CopyRing::Piece* copied;  // lies in the ring until then; none: host memory
    };
    std::array<End, 2 * kPieces> ends;

    Lender lender;
  };

  void prepare(Request& request, uint64_t bytes) override;
  bool help(const Request& request) override;
  Step step(int socket) override;
  void judge_losses(bool) override;
  void exchange_notices() override;
  bool take_control(const uint8_t* bytes, size_t count) override;
  uint64_t oldest_unfreed() const override { return ring_.seen; }
  bool goes_on_unannounced() const override;

  void open_lenders();
  void copy_ahead(CopyRing& copies);
  void note_failed_copy();
  void fill(Load& load);
  ssize_t send_parts(Load& load, int fd);
  bool take_notice();
  CopyRing::Piece* landed_piece();

  const uint64_t chunk_bytes_;  // most of a piece
  const uint64_t copy_bytes_;   // and of one out of GPU memory
  uint64_t next_ = 0;           // the oldest request of which no socket has all pieces yet
  std::unique_ptr<Load[]> loads_;
  std::atomic<uint64_t> sent_{0};  // bytes

  // From the first registration of GPU memory on.
  CopyRing* copies() const { return copies_.load(std::memory_order_acquire); }
  std::unique_ptr<CopyRing> copy_ring_;
  std::atomic<CopyRing*> copies_{nullptr};
  // The caller's own.
  int32_t tag_ = 0;         // of the message that is posted
  uint64_t copy_next_ = 0;  // the oldest request that may have bytes to be copied
  uint32_t looks_ = 0;      // at copies that had not landed

  uint64_t granted_;  // receives that the peer has posted; without RECV_SYNC: no limit
  uint32_t have_ = 0;
  Notice notice_;      // its first `have_` bytes
  uint64_t lent_ = 0;  // pieces that the peer may still read
};

}  // namespace softtcpx
