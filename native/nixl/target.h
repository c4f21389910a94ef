// The side of a link that is asked: checks every segment against what is registered here, and
// answers.
#pragma once

#include <map>
#include <memory>

#include "nixl/link.h"

namespace tcpx::nixl {

class Target : public Link {
 public:
  Target(Surroundings& all, Socket connected);
  bool uses(const Region& region) const override;

  bool waits() const override { return !open_.empty() || stage_ != LinkStage::kReady; }

 protected:
  void take(const Frame& frame) override;
  bool accepts_more() const override;

 private:
  void take_hello(const Frame& frame);
  void refuse(const std::string& reason);
  // NULL: it was refused.
  std::shared_ptr<Job> checked(const TransferFrame& transfer);
  void serve_write(const TransferFrame& transfer);
  void serve_read(const TransferFrame& transfer);
  void granted_credit(uint64_t id);

  // Transfers that are not over; with the job of a read that waits for its credit.
  std::map<uint64_t, std::shared_ptr<Job>> open_;
};

}  // namespace tcpx::nixl
