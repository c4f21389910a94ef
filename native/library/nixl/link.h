// One agent's way to another: a control stream and the data path's connections, made by the
// initiator and used for what it asks for. An agent that both asks and is asked has two.
//
//   kDialing -> kGreeting -> kJoining -> kReady         (kFailed from each; who was not answered
//                                                         dials again)
//
// set-up initiator: kHello                   target: begins to connect; when it has, kWelcome
//        initiator: begins to connect; when it has, kBegun, and accepts
//                                            target: accepts
//        each: kUp when all connections are there
//        So nobody is in an accept that waits for a connect which the peer has not begun: a plugin
//        may block in there, and agents in a circle would wait for each other for ever.
// WRITE  initiator: kWrite{segments}          target: checks them, kCredit, receives
//        initiator: sends                     target: when all is in place, the notification, kDone
//        complete at kDone: the bytes are there
// READ   initiator: kRead{segments}           target: checks them, kGrant
//        initiator: kCredit, receives         target: sends
//        complete when all is in place, then the notification
// small  the bytes in kWrite, or in kData, and no data path
// The receiver settles the order of messages, by its kCredits; what it refuses is never sent.
// Guarded by the engine's lock, as all that is derived from it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "library/nixl/data_path.h"
#include "library/nixl/inline_bytes.h"
#include "library/nixl/options.h"
#include "library/nixl/pump.h"
#include "library/nixl/regions.h"
#include "library/nixl/stream.h"
#include "library/nixl/wire.h"

namespace tcpx::nixl {

// What all links of an engine share.
struct Surroundings {
  std::string agent;
  Options options;
  Terms terms;
  Token token{};
  std::string machine;
  Regions regions;
  InlineBytes inline_bytes;
  DataPath* path = nullptr;
  Notifications notifications;  // that came in
  uint64_t notification_bytes = 0;
  uint64_t next_link = 1;
  // Whose metadata was invalidated here, the oldest first, by the token of its engine.
  std::deque<Token> revoked;
  int epoll = -1;

  void notify(const std::string& sender, std::string_view text) {
    notifications.emplace_back(sender, text);
    notification_bytes += sizeof(notifications.back()) + sender.size() + text.size();
  }
  std::chrono::milliseconds patience() const {
    return std::chrono::milliseconds(static_cast<int64_t>(options.patience_s * 1e3));
  }
  StageRule stage_rule(bool stages) const {
    return {stages ? options.stage_below : 0, options.stage_bytes};
  }
};

enum class LinkStage { kDialing, kGreeting, kJoining, kReady, kFailed };

class AgentLink {
 public:
  AgentLink(Surroundings& all, const char* role, const std::string& remote);
  virtual ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  LinkStage stage() const { return stage_; }
  const std::string& remote() const { return remote_; }  // the agent's name
  int fd() const { return stream_.fd(); }
  const std::string& reason() const { return reason_; }
  bool lost_work() const { return lost_work_; }  // when it failed
  // One that has not proved that it knows whom it is connected to.
  virtual bool is_stranger() const { return false; }
  virtual void forget_notifications() {}           // all that came in were fetched
  bool is_watched() const { return is_watched_; }  // by the engine's epoll
  void watched() { is_watched_ = true; }

  // The stream has something to be read.
  void read();
  // One round of all else; true when anything moved.
  bool run(int64_t now);
  // Something is under way that no event of the stream tells of.
  virtual bool active() const;
  // The data path has something to do for it.
  bool uses_path() const;
  virtual bool waits() const = 0;  // for the other side
  virtual bool uses(const Region& region) const;
  void fail(Status status, const std::string& reason);
  // Sends what is left to be sent, and closes.
  void end();

 protected:
  virtual void take(const Frame& frame) = 0;
  virtual bool advance(int64_t) { return false; }
  virtual void failed(Status) {}
  virtual void say_why(const std::string&) {}         // to the other side, before the end
  virtual bool accepts_more() const { return true; }  // of what it is asked for
  // The other side has closed the connection: whether another one takes its place.
  virtual bool begins_anew() { return false; }

  // With the proof for `challenge` that we know `secret`.
  void greet(FrameType type, const Token& attempt, const Token& secret, const Token& challenge);
  // Our connects begin, and `tell_begun` is called when they have.
  void join(const Greeting& greeting);
  virtual void tell_begun() = 0;
  void take_begun();  // the other side's have
  void leave_path();
  void close_stream(int patience_ms);
  void take_up();
  void flush();
  // Of a frame, begun at `frame_at` of `out`, the payload; a frame without it is not sent.
  void gather_into(char* to, const std::vector<RegionRange>& places, size_t frame_at);
  virtual bool has_unsent() const { return stream_.backlog() > 0; }
  std::string& out() { return stream_.out(); }
  virtual std::string who() const { return "agent " + remote_; }

  Surroundings& all_;
  std::string remote_;
  Stream stream_;
  LinkStage stage_ = LinkStage::kGreeting;
  std::unique_ptr<Pump> sends_, receives_;

 private:
  double patience_s() const;
  std::string listen();
  bool come_up();
  void may_accept();

  const std::string key_;  // of the data path
  bool on_path_ = false;
  bool begun_here_ = false, begun_there_ = false;
  bool up_here_ = false, up_there_ = false;
  bool moved_ = false;
  bool holds_frames_ = false;  // that were read, or are to be, when more is accepted
  bool is_watched_ = false;
  int64_t last_run_ns_ = 0;
  int64_t last_progress_ns_ = 0;
  std::string reason_;
  bool lost_work_ = false;
};

// For the people who look for what went wrong: one line on stderr, whatever bytes are in it.
void report(const std::string& agent, const std::string& what);

}  // namespace tcpx::nixl
