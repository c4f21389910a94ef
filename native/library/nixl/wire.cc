#include "library/nixl/wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "proof/blake2s.h"

namespace tcpx::nixl {
namespace {

// The header goes in front of what is appended while this lives.
class Opened {
 public:
  Opened(std::string& out, FrameType type) : out_(out), at_(out.size()) {
    put(out, kWireMagic);
    put(out, kWireVersion);
    put(out, static_cast<uint16_t>(type));
    put(out, uint64_t{0});
  }
  ~Opened() {
    const uint64_t body = out_.size() - at_ - kHeaderBytes;
    memcpy(out_.data() + at_ + 8, &body, sizeof(body));
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  std::string& out_;
  size_t at_;
};

// Of `text`, under a token; `use` keeps one use of it from another.
template <size_t size>
std::array<uint8_t, size> keyed_hash(const Token& key, std::string_view use, std::string text) {
  text += use;
  std::array<uint8_t, size> hash;
  blake2s(hash.data(), size, key.bytes, sizeof(key.bytes), text.data(), text.size());
  return hash;
}

// What a greeting's proof and mask are made over, beside its body.
std::string circumstances(FrameType type, const Token& challenge) {
  std::string text;
  put(text, kWireVersion);
  put(text, static_cast<uint16_t>(type));
  put_token(text, challenge);
  return text;
}

Token proof_of(FrameType type, std::string_view body, const Token& secret, const Token& challenge) {
  const std::string text = circumstances(type, challenge).append(body.substr(sizeof(Token::bytes)));
  const auto hash = keyed_hash<sizeof(Token::bytes)>(secret, "proof", text);
  Token proof;
  memcpy(proof.bytes, hash.data(), sizeof(proof.bytes));
  return proof;
}

// Hides or shows what only the other side may know: the data path's handles have secrets of theirs.
void mask(std::string& text, FrameType type, const Token& attempt, const Token& secret,
          const Token& challenge) {
  std::string over = circumstances(type, challenge);
  put_token(over, attempt);
  for (size_t at = 0; at < text.size(); at += 32) {
    std::string block = over;
    put(block, uint64_t{at});
    const auto pad = keyed_hash<32>(secret, "mask", block);
    for (size_t i = at; i < std::min(at + 32, text.size()); ++i) {
      text[i] = static_cast<char>(text[i] ^ pad[i - at]);
    }
  }
}

constexpr uint8_t kInlineFlag = 1, kStagesFlag = 2, kNotifiesFlag = 4;

}  // namespace

char* FrameReader::room(size_t wanted) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - end_ < wanted) {
    if (begin_ > 0) {
      memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (buffer_.size() - end_ < wanted) buffer_.resize(end_ + wanted);
  }
  return buffer_.data() + end_;
}

bool FrameReader::next(Frame& frame, size_t most_body) {
  const std::string_view here(buffer_.data() + begin_, end_ - begin_);
  if (here.size() < kHeaderBytes) return false;
  Fields header(here.substr(0, kHeaderBytes));
  if (header.number<uint32_t>("the magic") != kWireMagic) {
    throw WireError("no frame of this protocol begins here");
  }
  const uint16_t version = header.number<uint16_t>("the version");
  if (version != kWireVersion) {
    throw WireError("the control stream is of version " + std::to_string(version) + ", not " +
                    std::to_string(kWireVersion) + ": install the same tcpx-mpi on both sides");
  }
  const uint16_t type = header.bounded<uint16_t>("the type of a frame", 1, kLastFrameType);
  const uint64_t body = header.bounded<uint64_t>("the length of a frame", 0, most_body);
  if (here.size() - kHeaderBytes < body) return false;
  frame.type = static_cast<FrameType>(type);
  frame.body = here.substr(kHeaderBytes, body);
  begin_ += kHeaderBytes + body;
  return true;
}

void write_challenge(std::string& out, const Token& challenge) {
  const Opened frame(out, FrameType::kChallenge);
  put_token(out, challenge);
}

Token read_challenge(std::string_view body) {
  Fields fields(body);
  const Token challenge = take_token(fields);
  fields.end("a challenge");
  return challenge;
}

void write_greeting(std::string& out, FrameType type, const Greeting& greeting) {
  const Opened frame(out, type);
  put_token(out, greeting.proof);
  put_token(out, greeting.attempt);
  put_terms(out, greeting.terms);
  put_token(out, greeting.engine);
  put_text(out, greeting.sender);
  put_text(out, greeting.target);
  put_text(out, greeting.path_info);
}

Greeting read_greeting(std::string_view body) {
  Fields fields(body);
  Greeting greeting;
  greeting.proof = take_token(fields);
  greeting.attempt = take_token(fields);
  greeting.terms = take_terms(fields);
  greeting.engine = take_token(fields);
  greeting.sender = fields.text("the sender's name", kMaxName);
  greeting.target = fields.text("the target's name", kMaxName);
  if (greeting.sender.empty()) throw WireError("the sender has no name");
  greeting.path_info = fields.text("the data path's info", kMaxPathInfo);
  fields.end("a greeting");
  return greeting;
}

void write_proven(std::string& out, FrameType type, const Greeting& greeting, const Token& secret,
                  const Token& challenge) {
  Greeting masked = greeting;
  mask(masked.path_info, type, greeting.attempt, secret, challenge);
  const size_t body = out.size() + kHeaderBytes;
  write_greeting(out, type, masked);
  const Token proof = proof_of(type, std::string_view(out).substr(body), secret, challenge);
  memcpy(out.data() + body, proof.bytes, sizeof(proof.bytes));
}

std::optional<Greeting> read_proven(const Frame& frame, const Token& secret,
                                    const Token& challenge) {
  Fields fields(frame.body);
  const Token proof = take_token(fields);
  if (!same_token(proof, proof_of(frame.type, frame.body, secret, challenge))) return std::nullopt;
  Greeting greeting = read_greeting(frame.body);
  mask(greeting.path_info, frame.type, greeting.attempt, secret, challenge);
  return greeting;
}

Token engine_of(const Token& token) {
  const auto hash = keyed_hash<sizeof(Token::bytes)>(token, "engine", "");
  Token engine;
  memcpy(engine.bytes, hash.data(), sizeof(engine.bytes));
  return engine;
}

void write_text(std::string& out, FrameType type, std::string_view text) {
  const Opened frame(out, type);
  out.append(text);
}

std::string_view read_text(std::string_view body, size_t most) {
  if (body.size() > most) throw WireError("a text of " + std::to_string(body.size()) + " bytes");
  return body;
}

void write_id(std::string& out, FrameType type, uint64_t id) {
  const Opened frame(out, type);
  put(out, id);
}

uint64_t read_id(std::string_view body) {
  Fields fields(body);
  const uint64_t id = fields.number<uint64_t>("an id");
  fields.end("an id");
  return id;
}

void write_begun(std::string& out) { const Opened frame(out, FrameType::kBegun); }
void write_up(std::string& out) { const Opened frame(out, FrameType::kUp); }

void write_done(std::string& out, const DoneFrame& done) {
  const Opened frame(out, FrameType::kDone);
  put(out, done.id);
  put(out, done.status);
  put_text(out, done.reason.substr(0, kMaxReason));
}

DoneFrame read_done(std::string_view body) {
  Fields fields(body);
  DoneFrame done;
  done.id = fields.number<uint64_t>("an id");
  done.status = fields.bounded<int32_t>("a status", -12, 0);
  done.reason = fields.text("a reason", kMaxReason);
  fields.end("the end of a transfer");
  return done;
}

char* write_transfer(std::string& out, FrameType type, const TransferFrame& transfer,
                     size_t payload_bytes) {
  const Opened frame(out, type);
  put(out, transfer.id);
  put(out, static_cast<uint8_t>((transfer.is_inline ? kInlineFlag : 0) |
                                (transfer.stages ? kStagesFlag : 0) |
                                (transfer.notifies ? kNotifiesFlag : 0)));
  put_text(out, transfer.notification);
  put(out, static_cast<uint32_t>(transfer.segments.size()));
  for (const Segment& segment : transfer.segments) {
    put(out, segment.region);
    put(out, segment.offset);
    put(out, segment.bytes);
  }
  const size_t at = out.size();
  out.resize(at + payload_bytes);
  return out.data() + at;
}

TransferFrame read_transfer(std::string_view body) {
  Fields fields(body);
  TransferFrame transfer;
  transfer.id = fields.number<uint64_t>("an id");
  const uint8_t flags = fields.bounded<uint8_t>("the flags of a transfer", 0, 7);
  transfer.is_inline = (flags & kInlineFlag) != 0;
  transfer.stages = (flags & kStagesFlag) != 0;
  transfer.notifies = (flags & kNotifiesFlag) != 0;
  transfer.notification = fields.text("a notification", kMaxNotification);
  const uint32_t count = fields.bounded<uint32_t>("the number of segments", 0, kMaxSegments);
  const std::string_view table = fields.bytes(count * kSegmentBytes, "the segments");
  transfer.segments.resize(count);
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t words[3];
    memcpy(words, table.data() + i * kSegmentBytes, kSegmentBytes);
    transfer.segments[i] = {words[0], words[1], words[2]};
    if (__builtin_add_overflow(total, words[2], &total)) throw WireError("segments of 2^64 bytes");
  }
  transfer.payload = fields.rest();
  if (!transfer.payload.empty() && !transfer.is_inline) {
    throw WireError("bytes in a transfer that says it has none");
  }
  return transfer;
}

char* write_data(std::string& out, uint64_t id, size_t payload_bytes) {
  const Opened frame(out, FrameType::kData);
  put(out, id);
  const size_t at = out.size();
  out.resize(at + payload_bytes);
  return out.data() + at;
}

DataFrame read_data(std::string_view body) {
  Fields fields(body);
  DataFrame data;
  data.id = fields.number<uint64_t>("an id");
  data.payload = fields.rest();
  return data;
}

}  // namespace tcpx::nixl
