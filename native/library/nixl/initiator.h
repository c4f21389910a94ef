// The side of a link that asks: dials, and brings posts to their end.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "library/nixl/link.h"
#include "library/nixl/transfer.h"

namespace tcpx::nixl {

class Initiator : public AgentLink {
 public:
  Initiator(Surroundings& all, const std::string& remote, ConnectionInfo info);

  void submit(const std::shared_ptr<Transfer>& transfer);
  void notify(std::string_view text);
  void fail_queued() { failed(kRemoteDisconnect); }  // of what came after the end
  bool active() const override;
  bool uses(const Region& region) const override;

  bool has_unsent() const override { return AgentLink::has_unsent() || !notes_.empty(); }
  bool waits() const override { return !open_.empty() || stage_ != LinkStage::kReady; }

 protected:
  void take(const Frame& frame) override;
  bool advance(int64_t now) override;
  void failed(Status status) override;
  void tell_begun() override { write_begun(out()); }
  bool begins_anew() override;

 private:
  struct Ask {
    std::shared_ptr<Transfer> transfer;
    const FrameContent* part;
    std::vector<RegionRange> places;  // keep the memory while it is in use
    bool is_inline = false;
    bool sent = false;     // of a write: its bytes have left our memory
    bool done = false;     // of a write: the target has them
    bool granted = false;  // of a read
    size_t kept = 0;       // by the target, while it is open
    bool is_write() const { return transfer->prepared->operation == kWrite; }
  };

  void dial_next(const std::string& why);
  void begin();  // as many as may be open
  bool has_place_for(const Ask& ask) const;
  void start(Ask ask);
  Ask& find(uint64_t id, bool is_write);
  void credited(uint64_t id);
  void granted(uint64_t id);
  void take_data(const DataFrame& data);
  void end_part(uint64_t id, Status status);
  void part_ended(Transfer& transfer, Status status);
  void end_transfer(Transfer& transfer, Status status);
  std::shared_ptr<Job> job_of(uint64_t id, Ask& ask);

  const ConnectionInfo info_;
  std::vector<std::string> addresses_;
  size_t next_address_ = 0;
  int64_t dialed_at_ = 0;
  const int64_t begun_at_;
  Token attempt_{};
  Token challenge_{};
  bool is_challenged_ = false;
  std::deque<Ask> queued_;
  std::deque<std::string> notes_;  // until the link is ready
  std::map<uint64_t, Ask> open_;
  size_t kept_ = 0;  // of them, by the target
  uint64_t next_id_ = 1;
};

}  // namespace tcpx::nixl
