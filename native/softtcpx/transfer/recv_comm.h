// The receiving side of a connection: pieces go straight from the socket into the posted buffer.
#pragma once

#include <array>
#include <chrono>
#include <memory>

#include "softtcpx/protocol/wire.h"
#include "softtcpx/transfer/bounce.h"
#include "softtcpx/transfer/comm.h"
#include "softtcpx/transfer/in_place.h"

namespace softtcpx {

class RecvComm final : public Comm {
 public:
  RecvComm(Device& device, Sockets sockets);
  ~RecvComm() override { leave_owner(); }

  // Page-locked and mapped where a GPU is current. Throws as BouncePool::open.
  void open_bounce();
  // The caller of accept knows how to unpack: from now on receives into GPU memory are taken.
  NetUnpackDevice* offer_device();

  bool serve_gpu_memory(const Gpu& gpu) override;
  int receive(void* data, int64_t bytes, const Region* region, void** request);
  // Of the kind that puts data in place: null for any other.
  InPlace* in_place() const { return in_place_.get(); }
  // Several at once, whose memory is served; a message goes to the one whose tag it has.
  struct Place {
    void* data;
    int64_t bytes;
    const Region* region;
    int tag;
  };
  int receive_together(const Place* places, int n, void** request);
  int test_ticket(Ticket& ticket, int* done, int* sizes);
  // What was received there, n times. Shown when the request that it makes is done, or at once.
  int flush(int n, void** data, const int* sizes, void** request);
  // Frees the slot of the oldest finished receive; any other request is refused.
  int consumed(const Request& request);
  // Ends the connection; an error when bounce pages are missing afterwards.
  int finish();

 private:
  // Behind the rest of the current piece, each read takes what follows it into a small stage: the
  // next header, and whole small messages with it. A large piece is copied once, by the kernel.
  struct SocketReader {
    static constexpr uint32_t kStageBytes = 8192 + 2 * sizeof(ChunkHeader);

    uint32_t staged() const { return end - begin; }

    uint64_t room() const {
      if (placed) return left < Placer::kBytes ? left : Placer::kBytes;
      return scatter != nullptr ? scatter->room() : left;
    }

    // Of what was looked at all is delivered, and nothing is taken out.
    bool holds() const { return peeked > 0 && staged() == 0; }
    // Of a trap: no page is free for what comes next.
    bool starved() const { return scatter != nullptr && scatter->starved(); }

    Request* request = nullptr;   // the message of the current piece; none between two pieces
    uint64_t sequence = 0;        // of that message
    uint8_t* cursor = nullptr;    // where its next byte belongs, unless it goes to bounce pages
    Scatter* scatter = nullptr;   // where to, if it does
    bool placed = false;          // it is put at `cursor` by way of a buffer
    uint64_t left = 0;            // bytes of the piece that are still to come
    bool lent = false;            // the sender waits to be told that they are read
    uint64_t read = 0;            // lent pieces, to their last byte
    uint64_t returned = 0;        // of which the sender is told
    uint32_t begin = 0, end = 0;  // bytes of the stage that are not used yet
    uint32_t peeked = 0;          // bytes that were staged and that the kernel still holds
    int visits_left = 0;          // before it is told to let go of them
    bool waited = false;          // the last read found nothing
    bool roomy = false;           // bytes may be held: the sender has room beside them
    std::array<uint8_t, kStageBytes> stage;
  };

  enum class Staged {
    kUsedUp,   // more bytes are needed
    kNotYet,   // a message for which nothing is posted, or no pages are free: leave it, and all
               // behind it, where it is
    kRefused,  // the peer breaks the rules; the connection has failed
  };

  void prepare(Request& request, uint64_t bytes) override;
  Step step(int socket) override;
  void while_idle() override;
  void exchange_notices() override;
  void judge_losses(bool moved) override;
  uint64_t oldest_unfreed() const override {
    return ring_.consumed.load(std::memory_order_relaxed);
  }
  bool goes_on_unannounced() const override;

  Staged use_stage(SocketReader& reader);
  Staged begin_piece(SocketReader& reader);
  bool admitted(uint64_t sequence, uint64_t posted);
  bool is_current(const ChunkHeader& header) const;
  Request* match(const ChunkHeader& header);
  bool put(SocketReader& reader, uint8_t* from, uint64_t bytes);
  bool next_notice();
  void announce(Request& request, const ChunkHeader& header);
  bool cut(SocketReader& reader);
  void copy_from_stage(SocketReader& reader, uint64_t bytes);
  ssize_t read(SocketReader& reader, int fd, uint64_t* wanted);
  ssize_t peek(SocketReader& reader, int fd);
  bool let_go(SocketReader& reader, int fd);
  void arrived(SocketReader& reader, uint64_t bytes);
  void complete(Request& request, uint64_t sequence);
  void spring_traps(Request& request, uint64_t sequence);
  void before_done(uint64_t sequence) override;
  bool fed(SocketReader& reader);
  Step lost(int socket, int error_number, bool moved);

  std::unique_ptr<SocketReader[]> readers_;
  // Since a loss: when a byte last came, pages were last missing, or a receive was last posted.
  std::chrono::steady_clock::time_point quiet_since_{};
  uint64_t judged_ = 0;  // receives posted then

  std::unique_ptr<InPlace> in_place_;
  // Of the receive that is posted, and of those that are posted with it.
  int32_t tag_ = 0;
  uint32_t together_ = 1;
  uint64_t first_ = 0;
  BouncePool bounce_;
  std::unique_ptr<Scatter[]> scatters_;  // one a socket, for receives into GPU memory
  bool offered_ = false;
  uint64_t admitted_ = 0;             // receives that have their pages, or need none
  std::atomic<bool> starved_{false};  // the next one waits for pages
  uint64_t starved_at_ = 0;           // receives that were consumed when they did not suffice
  uint64_t credited_ = 0;             // receives that the sender knows of
  Notice notice_{};
  uint32_t notice_left_ = 0;  // bytes at its end that are not sent yet
};

}  // namespace softtcpx
