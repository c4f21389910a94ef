// The receiving side of a connection: pieces go straight from the socket into the posted buffer.
#pragma once

#include <array>
#include <chrono>
#include <memory>

#include "softtcpx/comm.h"
#include "softtcpx/wire.h"

namespace softtcpx {

class RecvComm final : public Comm {
 public:
  RecvComm(Device& device, Sockets sockets);
  ~RecvComm() override { leave_owner(); }

  int receive(void* data, int64_t bytes, const Region* region, void** request) {
    return post(data, bytes, region, request);
  }
  // Frees the slot of the oldest finished receive; any other request is refused.
  int consumed(const Request& request);

 private:
  // Behind the rest of the current piece, each read takes what follows it into a small stage: the
  // next header, and whole small messages with it. A large piece is copied once, by the kernel.
  struct Lane {
    static constexpr uint32_t kStageBytes = 8192 + 2 * sizeof(ChunkHeader);

    uint32_t staged() const { return end - begin; }

    Request* request = nullptr;   // the message of the current piece; none between two pieces
    uint8_t* cursor = nullptr;    // where its next byte belongs
    uint64_t left = 0;            // bytes of the piece that are still to come
    uint32_t begin = 0, end = 0;  // bytes of the stage that are not used yet
    std::array<uint8_t, kStageBytes> stage;
  };

  enum class Staged {
    kUsedUp,   // more bytes are needed
    kNotYet,   // a message for which nothing is posted: leave it, and all behind it, where it is
    kRefused,  // the peer breaks the rules; the connection has failed
  };

  void prepare(Request& request, uint64_t bytes) override;
  Step step(int socket) override;
  void while_idle() override;
  void judge_losses() override;
  uint64_t oldest_unfreed() const override { return ring_.consumed; }

  Staged use_stage(Lane& lane);
  Staged begin_piece(Lane& lane);
  void arrived(Lane& lane, uint64_t bytes);
  Step lost(int socket, int error_number);

  std::unique_ptr<Lane[]> lanes_;
  std::chrono::steady_clock::time_point losing_since_{};
};

}  // namespace softtcpx
