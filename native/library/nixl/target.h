// The side of a link that is asked: checks every segment against what is registered here, and
// answers.
#pragma once

#include <map>
#include <memory>

#include "library/nixl/link.h"

namespace tcpx::nixl {

class Target : public AgentLink {
 public:
  Target(Surroundings& all, Socket connected);
  bool uses(const Region& region) const override;

  bool waits() const override { return !open_.empty() || stage_ != LinkStage::kReady; }
  bool is_stranger() const override { return !is_proven_; }
  void forget_notifications() override { unfetched_bytes_ = 0; }
  const Token& engine() const { return engine_; }  // that it said it is

 protected:
  void take(const Frame& frame) override;
  bool accepts_more() const override;
  void tell_begun() override;
  void say_why(const std::string& reason) override;
  std::string who() const override;

 private:
  struct Open {
    std::shared_ptr<Job> job;  // of a read that waits for its credit
    size_t kept;
  };

  void note(std::string_view text);
  void begin_open(const TransferFrame& transfer, std::shared_ptr<Job> job);
  void end_open(uint64_t id);
  void take_hello(const Frame& frame);
  void refuse(const std::string& reason);
  // NULL: it was refused.
  std::shared_ptr<Job> checked(const TransferFrame& transfer);
  void serve_write(const TransferFrame& transfer);
  void serve_read(const TransferFrame& transfer);
  void granted_credit(uint64_t id);

  const std::string address_;
  Token challenge_{};
  Token engine_{};
  Token attempt_{};  // of its hello
  bool is_proven_ = false;
  bool is_answered_ = false;
  std::map<uint64_t, Open> open_;  // transfers that are not over
  size_t kept_ = 0;                // of them
  uint64_t unfetched_bytes_ = 0;   // of notifications from here
};

}  // namespace tcpx::nixl
