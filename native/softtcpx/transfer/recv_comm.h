// The receiving side of a connection: pieces go straight from the socket into the posted buffer.
#pragma once

#include <chrono>
#include <memory>

#include "softtcpx/gpu/page_copier.h"
#include "softtcpx/transfer/bounce_receives.h"
#include "softtcpx/transfer/comm.h"
#include "softtcpx/transfer/in_place.h"
#include "softtcpx/transfer/receive_notices.h"
#include "softtcpx/transfer/socket_reader.h"

namespace softtcpx {

class RecvComm final : public Comm {
 public:
  RecvComm(Device& device, Sockets sockets);
  ~RecvComm() override { leave_owner(); }

  // Page-locked and mapped where a GPU is current. Throws as BouncePool::open.
  void open_bounce();
  // The caller of accept knows how to unpack: from now on receives into GPU memory are taken.
  NetUnpackDevice* offer_device() { return bounce_.offer(); }

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

  size_t number_of(const SocketReader& reader) const {
    return static_cast<size_t>(&reader - &readers_[0]);
  }
  Staged use_stage(SocketReader& reader);
  Staged begin_piece(SocketReader& reader);
  bool is_current(const ChunkHeader& header) const;
  bool put(SocketReader& reader, uint8_t* from, uint64_t bytes);
  void announce(Request& request, const ChunkHeader& header);
  bool cut(SocketReader& reader);
  void copy_from_stage(SocketReader& reader, uint64_t bytes);
  ssize_t read(SocketReader& reader, int fd, uint64_t* wanted);
  void arrived(SocketReader& reader, uint64_t bytes);
  void complete(Request& request, uint64_t sequence);
  void spring_traps(Request& request, uint64_t sequence);
  void before_done(uint64_t sequence) override;
  bool is_in_reach(uint64_t sequence) override;
  void copy_pages(uint64_t sequence);
  bool fed(SocketReader& reader);
  Step lost(int socket, int error_number, bool moved);

  std::unique_ptr<SocketReader[]> readers_;
  // Since a loss: when a byte last came, pages were last missing, or a receive was last posted.
  std::chrono::steady_clock::time_point quiet_since_{};
  uint64_t judged_ = 0;  // receives posted then

  std::unique_ptr<InPlace> in_place_;
  BounceReceives bounce_;
  // Where the GPU has pages of its own, the caller's: none otherwise.
  std::unique_ptr<PageCopier> copier_;
  uint64_t copied_ = 0;  // receives whose copies have begun, or that need none
  uint32_t looks_ = 0;   // at copies that had not landed
  ReceiveNotices notices_;
};

}  // namespace softtcpx
