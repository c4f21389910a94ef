#include "softtcpx/wire.h"

#include <sys/random.h>

#include <algorithm>

#include "softtcpx/settings.h"

namespace softtcpx {
namespace {

constexpr char kHandleMagic[8] = {'s', 't', 'c', 'p', 'x', 'H', 'N', 'D'};
constexpr char kHelloMagic[8] = {'s', 't', 'c', 'p', 'x', 'H', 'E', 'L'};
constexpr uint32_t kChunkMagic = 0x6b6e6863;
constexpr uint32_t kCreditMagic = 0x74647263;

template <size_t n>
bool all_zero(const uint8_t (&bytes)[n]) {
  return std::all_of(bytes, bytes + n, [](uint8_t byte) { return byte == 0; });
}

// What both kinds of judgement share: is it a hello of this version, with `sockets` sockets?
HelloVerdict judge_form(const Hello& hello, int sockets) {
  if (std::memcmp(hello.magic, kHelloMagic, sizeof kHelloMagic) != 0) return HelloVerdict::kNotOurs;
  if (hello.version != kWireVersion) return HelloVerdict::kOtherVersion;
  if (!all_zero(hello.unused) || !all_zero(hello.spare)) return HelloVerdict::kMalformed;
  if (hello.sockets != sockets) return HelloVerdict::kMalformed;
  return HelloVerdict::kWelcome;
}

}  // namespace

bool same_token(const Token& a, const Token& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < sizeof a.bytes; ++i) difference |= a.bytes[i] ^ b.bytes[i];
  return difference == 0;
}

bool random_token(Token* token) {
  return ::getrandom(token->bytes, sizeof token->bytes, 0) ==
         static_cast<ssize_t>(sizeof token->bytes);
}

ListenHandle make_listen_handle() {
  ListenHandle handle{};
  std::memcpy(handle.magic, kHandleMagic, sizeof kHandleMagic);
  handle.version = kWireVersion;
  return handle;
}

bool valid_listen_handle(const ListenHandle& handle) {
  return std::memcmp(handle.magic, kHandleMagic, sizeof kHandleMagic) == 0 &&
         handle.version == kWireVersion && handle.port != 0 && handle.sockets >= 1 &&
         handle.sockets <= kMaxSockets && handle.threads <= kMaxThreads &&
         (handle.flags & ~kRecvSync) == 0;
}

Hello make_hello(HelloKind kind, int index, int sockets, const Token& connection,
                 const Token& proof) {
  Hello hello{};
  std::memcpy(hello.magic, kHelloMagic, sizeof kHelloMagic);
  hello.version = kWireVersion;
  hello.kind = kind;
  hello.index = static_cast<uint8_t>(index);
  hello.sockets = static_cast<uint8_t>(sockets);
  hello.connection = connection;
  hello.proof = proof;
  return hello;
}

const char* verdict_text(HelloVerdict verdict) {
  switch (verdict) {
    case HelloVerdict::kWelcome:
      return "welcome";
    case HelloVerdict::kNotOurs:
      return "no softtcpx handshake";
    case HelloVerdict::kOtherVersion:
      return "another version of softtcpx";
    case HelloVerdict::kMalformed:
      return "a malformed handshake";
    case HelloVerdict::kForeignSecret:
      return "a handshake for another listener";
    case HelloVerdict::kOtherConnection:
      return "an answer to another connection";
  }
  return "unknown";
}

HelloVerdict judge_hello(const uint8_t (&bytes)[sizeof(Hello)], const Token& secret, int sockets,
                         Hello* hello) {
  std::memcpy(hello, bytes, sizeof *hello);
  const HelloVerdict form = judge_form(*hello, sockets);
  if (form != HelloVerdict::kWelcome) return form;
  const int indices = hello->kind == HelloKind::kData      ? sockets
                      : hello->kind == HelloKind::kControl ? 1
                                                           : 0;
  if (hello->index >= indices) return HelloVerdict::kMalformed;
  if (!same_token(hello->proof, secret)) return HelloVerdict::kForeignSecret;
  return HelloVerdict::kWelcome;
}

HelloVerdict judge_answer(const uint8_t (&bytes)[sizeof(Hello)], const Token& answer,
                          const Token& connection, int sockets) {
  Hello hello;
  std::memcpy(&hello, bytes, sizeof hello);
  const HelloVerdict form = judge_form(hello, sockets);
  if (form != HelloVerdict::kWelcome) return form;
  if (hello.kind != HelloKind::kAnswer || hello.index != 0) return HelloVerdict::kMalformed;
  if (!same_token(hello.proof, answer)) return HelloVerdict::kForeignSecret;
  if (!same_token(hello.connection, connection)) return HelloVerdict::kOtherConnection;
  return HelloVerdict::kWelcome;
}

ChunkHeader make_chunk_header(uint64_t sequence, uint64_t total, uint64_t offset, uint32_t length) {
  return ChunkHeader{kChunkMagic, length, sequence, total, offset, {}};
}

Credit make_credit(uint64_t posted) { return Credit{kCreditMagic, 0, posted}; }

bool judge_credit(const uint8_t (&bytes)[sizeof(Credit)], uint64_t granted, uint64_t sent,
                  uint64_t* posted) {
  Credit credit;
  std::memcpy(&credit, bytes, sizeof credit);
  if (credit.magic != kCreditMagic || credit.spare != 0) return false;
  // Without a sum: a number near 2^64 must not wrap around.
  if (credit.posted <= granted || credit.posted < sent || credit.posted - sent > kNetMaxRequests)
    return false;
  *posted = credit.posted;
  return true;
}

const char* verdict_text(ChunkVerdict verdict) {
  switch (verdict) {
    case ChunkVerdict::kGood:
      return "good";
    case ChunkVerdict::kMalformed:
      return "a malformed chunk header";
    case ChunkVerdict::kTooLarge:
      return "a message larger than the receive that was posted for it";
    case ChunkVerdict::kDisagrees:
      return "pieces of a message that contradict each other";
  }
  return "unknown";
}

bool plausible_chunk(const ChunkHeader& header) {
  if (header.magic != kChunkMagic || !all_zero(header.spare)) return false;
  if (header.offset > header.total) return false;
  if (header.length > header.total - header.offset) return false;
  return header.length > 0 || header.total == 0;  // only an empty message has an empty piece
}

ChunkVerdict judge_chunk(const ChunkHeader& header, const ExpectedMessage& message) {
  if (!plausible_chunk(header)) return ChunkVerdict::kMalformed;
  if (header.total > message.capacity) return ChunkVerdict::kTooLarge;
  if (!message.announced) return ChunkVerdict::kGood;
  if (header.total != message.total) return ChunkVerdict::kDisagrees;
  if (header.length == 0) return ChunkVerdict::kDisagrees;  // an empty message has but one piece
  if (header.length > message.total - message.scheduled) return ChunkVerdict::kDisagrees;
  return ChunkVerdict::kGood;
}

}  // namespace softtcpx
