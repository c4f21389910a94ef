// The control stream between two agents: frames, and what is in them.
//
// A frame is a header of 16 bytes (magic, version, type, bytes of the body) and its body, numbers
// in little endian. A frame that breaks a bound ends the connection, with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "library/nixl/fields.h"
#include "library/nixl/metadata.h"
#include "proof/token.h"

namespace tcpx::nixl {

constexpr uint32_t kWireMagic = 0x4c585854;  // "TXXL"
constexpr uint16_t kWireVersion = 5;
constexpr size_t kHeaderBytes = 16;
constexpr size_t kMaxBody = size_t{2} << 20;
constexpr uint64_t kMostInline = 1 << 20;  // bytes of a request that a frame may have
constexpr size_t kMaxNotification = 1 << 20;
constexpr size_t kMaxSegments = 32768;  // of one frame: a longer request is several
constexpr size_t kMaxReason = 4096;     // in words
constexpr size_t kMaxPathInfo = 16384;  // of the data path's listeners
// Of the frames before both sides know each other.
constexpr size_t kMaxGreeting = 4 * kMaxName + kMaxPathInfo;

enum class FrameType : uint16_t {
  kChallenge = 1,  // from whoever was connected to, at once
  kHello,          // from whoever connects
  kWelcome,        // from whoever was connected to
  kRefuse,         // with a reason in words, and the end
  kBegun,          // from whoever connects: its connects of the data path have begun
  kUp,             // all comms of this side are there
  kWrite,          // segments, perhaps with the bytes
  kRead,
  kGrant,   // of a read: its segments are right
  kCredit,  // receives will be posted, in the order of these
  kCancel,  // of a read that was granted and is wanted no more
  kDone,    // with a status
  kData,    // the bytes of a small read
  kNotify,
};
constexpr uint16_t kLastFrameType = static_cast<uint16_t>(FrameType::kNotify);

struct Frame {
  FrameType type;
  std::string_view body;  // within the reader
};

// Cuts a stream into frames.
class FrameReader {
 public:
  // Where to put the next bytes: at least `wanted` of room.
  char* room(size_t wanted);
  void filled(size_t bytes) { end_ += bytes; }

  // False: not all of it is here. Throws WireError. The frame is there until the next call of any.
  bool next(Frame& frame, size_t most_body = kMaxBody);

 private:
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
};

// The handshake. The target, which was connected to, sends a random challenge. The initiator
// answers with a hello and a proof, over both, that it has the target's token. The target answers
// with a welcome and its own proof, over the hello's random attempt, too. So the token is on no
// wire, what was recorded is of no use to anybody, and nothing of a hello is read before its proof.
struct Greeting {  // kHello and kWelcome
  Token proof{};
  Token attempt{};  // random, of whoever connects; a welcome repeats it
  Terms terms;
  Token engine{};  // names the sender's engine: see engine_of
  std::string sender;
  std::string target;
  std::string path_info;  // what the other side's data path connects to; masked
};

// A stretch of registered memory.
struct Segment {
  uint64_t region;
  uint64_t offset;
  uint64_t bytes;
};
constexpr size_t kSegmentBytes = 24;
constexpr size_t kMaxTransferHead = 64;  // of such a frame, without what has a length of its own

struct TransferFrame {  // kWrite and kRead
  uint64_t id = 0;
  bool is_inline = false;  // the bytes are in this frame, or wanted in one
  bool stages = false;     // small segments travel through the bounce buffers
  bool notifies = false;
  std::string_view notification;
  std::vector<Segment> segments;
  std::string_view payload;
};

// What a target keeps of a transfer that is open. An initiator has no more than kMostKept open; its
// target, which may see the end of a read later, bears twice that from it and no more.
constexpr size_t kMostKept = 16 << 20;
constexpr size_t target_state_bytes(size_t segments, size_t notification_bytes) {
  return 256 + 128 * segments + notification_bytes;
}
static_assert(target_state_bytes(kMaxSegments, kMaxNotification) <= kMostKept);

struct DoneFrame {
  uint64_t id = 0;
  int32_t status = 0;
  std::string_view reason;
};

// Each appends one whole frame.
void write_challenge(std::string& out, const Token& challenge);
void write_greeting(std::string& out, FrameType type, const Greeting& greeting);
void write_text(std::string& out, FrameType type, std::string_view text);  // kRefuse, kNotify
void write_id(std::string& out, FrameType type, uint64_t id);  // kGrant, kCredit, kCancel
void write_begun(std::string& out);
void write_up(std::string& out);
void write_done(std::string& out, const DoneFrame& done);
// `payload_bytes` are left for the caller to fill, at the end of `out`.
char* write_transfer(std::string& out, FrameType type, const TransferFrame& transfer,
                     size_t payload_bytes);
char* write_data(std::string& out, uint64_t id, size_t payload_bytes);

// Each throws WireError.
Token read_challenge(std::string_view body);
Greeting read_greeting(std::string_view body);
uint64_t read_id(std::string_view body);
DoneFrame read_done(std::string_view body);
TransferFrame read_transfer(std::string_view body);
struct DataFrame {
  uint64_t id;
  std::string_view payload;
};
DataFrame read_data(std::string_view body);
std::string_view read_text(std::string_view body, size_t most);

// A greeting whose proof and mask are made here.
void write_proven(std::string& out, FrameType type, const Greeting& greeting, const Token& secret,
                  const Token& challenge);
// The greeting, if the proof in it is right; none: it is not, and nothing else was looked at.
// Throws WireError.
std::optional<Greeting> read_proven(const Frame& frame, const Token& secret,
                                    const Token& challenge);
// What names the engine of a token to those who do not have that.
Token engine_of(const Token& token);

}  // namespace tcpx::nixl
