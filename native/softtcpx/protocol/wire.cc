#include "softtcpx/protocol/wire.h"

#include <algorithm>

#include "proof/blake2s.h"

namespace softtcpx {
namespace {

constexpr char kHandleMagic[8] = {'s', 't', 'c', 'p', 'x', 'H', 'N', 'D'};
constexpr char kGreetingMagic[8] = {'s', 't', 'c', 'p', 'x', 'H', 'E', 'L'};
constexpr uint32_t kChunkMagic = 0x6b6e6863;
constexpr uint32_t kCreditMagic = 0x74647263;
constexpr uint32_t kReturnMagic = 0x6e727472;

template <size_t n>
bool all_zero(const uint8_t (&bytes)[n]) {
  return std::all_of(bytes, bytes + n, [](uint8_t byte) { return byte == 0; });
}

Greeting make_greeting(GreetingKind kind, int socket, int sockets, const Token& attempt,
                       const Token& token) {
  Greeting greeting{};
  std::memcpy(greeting.magic, kGreetingMagic, sizeof kGreetingMagic);
  greeting.version = kWireVersion;
  greeting.kind = kind;
  greeting.socket = static_cast<uint8_t>(socket);
  greeting.sockets = static_cast<uint8_t>(sockets);
  greeting.attempt = attempt;
  greeting.token = token;
  return greeting;
}

// Is it a greeting of this version and kind, among `sockets` data sockets?
GreetingVerdict judge_form(const Greeting& greeting, GreetingKind kind, int sockets) {
  if (std::memcmp(greeting.magic, kGreetingMagic, sizeof kGreetingMagic) != 0)
    return GreetingVerdict::kNotOurs;
  if (greeting.version != kWireVersion) return GreetingVerdict::kOtherVersion;
  if (!all_zero(greeting.unused) || !all_zero(greeting.spare)) return GreetingVerdict::kMalformed;
  if (greeting.kind != kind) return GreetingVerdict::kMalformed;
  if (greeting.sockets != sockets || greeting.socket > sockets) return GreetingVerdict::kMalformed;
  return GreetingVerdict::kWelcome;
}

// Is it that greeting, but for the token?
GreetingVerdict judge_all_but_token(const Greeting& greeting, GreetingKind kind,
                                    const Greeting& other) {
  const GreetingVerdict form = judge_form(greeting, kind, other.sockets);
  if (form != GreetingVerdict::kWelcome) return form;
  if (greeting.socket != other.socket) return GreetingVerdict::kMalformed;
  if (!same_token(greeting.attempt, other.attempt)) return GreetingVerdict::kOtherAttempt;
  return GreetingVerdict::kWelcome;
}

// What a proof is made over; never sent. It has all that the sides must agree on.
struct Claim {
  uint32_t version;
  GreetingKind kind;  // kProof: the connecting side says so; kAnswer: the listening one
  uint8_t socket;
  uint8_t sockets;
  uint8_t threads;
  uint32_t flags;
  Token attempt;
  Challenges challenges;  // kProof: the one of this socket alone
};
static_assert(sizeof(Claim) == 12 + sizeof(Token) * (1 + kMostGreeters), "no byte without a name");

Greeting prove(const ListenHandle& handle, GreetingKind kind, int socket, const Token& attempt,
               const Challenges& challenges) {
  const Claim claim{kWireVersion,   kind,           static_cast<uint8_t>(socket),
                    handle.sockets, handle.threads, handle.flags,
                    attempt,        challenges};
  Token proof;
  tcpx::blake2s(proof.bytes, sizeof proof.bytes, handle.secret.bytes, sizeof handle.secret.bytes,
                &claim, sizeof claim);
  return make_greeting(kind, socket, handle.sockets, attempt, proof);
}

}  // namespace

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

Greeting make_hello(int socket, int sockets, const Token& attempt) {
  return make_greeting(GreetingKind::kHello, socket, sockets, attempt, {});
}

Greeting make_challenge(const Greeting& hello, const Token& challenge) {
  return make_greeting(GreetingKind::kChallenge, hello.socket, hello.sockets, hello.attempt,
                       challenge);
}

Greeting make_proof(const ListenHandle& handle, const Greeting& hello, const Token& challenge) {
  Challenges challenges{};
  challenges[hello.socket] = challenge;
  return prove(handle, GreetingKind::kProof, hello.socket, hello.attempt, challenges);
}

Greeting make_answer(const ListenHandle& handle, const Token& attempt,
                     const Challenges& challenges) {
  return prove(handle, GreetingKind::kAnswer, 0, attempt, challenges);
}

const char* verdict_text(GreetingVerdict verdict) {
  switch (verdict) {
    case GreetingVerdict::kWelcome:
      return "welcome";
    case GreetingVerdict::kNotOurs:
      return "no softtcpx handshake";
    case GreetingVerdict::kOtherVersion:
      return "another version of softtcpx";
    case GreetingVerdict::kMalformed:
      return "a malformed handshake";
    case GreetingVerdict::kOtherAttempt:
      return "a word from another handshake";
    case GreetingVerdict::kNoProof:
      return "no proof of the handle's secret";
  }
  return "unknown";
}

GreetingVerdict judge_hello(const GreetingBytes& bytes, int sockets, Greeting* hello) {
  std::memcpy(hello, bytes, sizeof *hello);
  const GreetingVerdict form = judge_form(*hello, GreetingKind::kHello, sockets);
  if (form != GreetingVerdict::kWelcome) return form;
  return all_zero(hello->token.bytes) ? GreetingVerdict::kWelcome : GreetingVerdict::kMalformed;
}

GreetingVerdict judge_challenge(const GreetingBytes& bytes, const Greeting& hello,
                                Token* challenge) {
  Greeting said;
  std::memcpy(&said, bytes, sizeof said);
  *challenge = said.token;
  return judge_all_but_token(said, GreetingKind::kChallenge, hello);
}

GreetingVerdict judge_proof(const GreetingBytes& bytes, const Greeting& honest) {
  Greeting said;
  std::memcpy(&said, bytes, sizeof said);
  const GreetingVerdict rest = judge_all_but_token(said, honest.kind, honest);
  if (rest != GreetingVerdict::kWelcome) return rest;
  return same_token(said.token, honest.token) ? GreetingVerdict::kWelcome
                                              : GreetingVerdict::kNoProof;
}

ChunkHeader make_chunk_header(uint64_t sequence, uint64_t total, uint64_t offset, uint32_t length,
                              uint32_t flags, int32_t tag) {
  return ChunkHeader{kChunkMagic, length, sequence, total, offset, flags, tag, {}};
}

Credit make_credit(uint64_t posted) { return Credit{kCreditMagic, 0, posted}; }

bool judge_credit(const Notice& bytes, uint64_t granted, uint64_t sent, uint64_t* posted) {
  Credit credit;
  std::memcpy(&credit, bytes, sizeof credit);
  if (credit.magic != kCreditMagic || credit.spare != 0) return false;
  // Without a sum: a number near 2^64 must not wrap around.
  if (credit.posted <= granted || credit.posted < sent || credit.posted - sent > kNetMaxRequests)
    return false;
  *posted = credit.posted;
  return true;
}

Return make_return(uint32_t socket, uint64_t pieces) {
  return Return{kReturnMagic, socket, pieces};
}

bool names_return(const Notice& bytes, size_t sockets, uint32_t* socket) {
  Return said;
  std::memcpy(&said, bytes, sizeof said);
  if (said.magic != kReturnMagic || said.socket >= sockets) return false;
  *socket = said.socket;
  return true;
}

bool judge_return(const Notice& bytes, uint64_t returned, uint64_t sent, uint64_t* pieces) {
  Return said;
  std::memcpy(&said, bytes, sizeof said);
  if (said.pieces <= returned || said.pieces > sent) return false;
  *pieces = said.pieces;
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
  if (header.magic != kChunkMagic || (header.flags & ~kLent) != 0 || !all_zero(header.spare))
    return false;
  if (header.offset > header.total) return false;
  if (header.length > header.total - header.offset) return false;
  if (header.length > 0) return true;
  return header.total == 0 && header.flags == 0;  // only an empty message has an empty piece
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
