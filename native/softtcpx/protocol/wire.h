// Every byte format of softtcpx, and pure functions that judge bytes: no sockets, no memory, no
// log.
//
// A number is little-endian on the wire as in memory; the asserts below stop any other build.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/abi_v7.h"
#include "proof/token.h"
#include "softtcpx/environment/settings.h"

namespace softtcpx {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little-endian");

constexpr uint32_t kWireVersion = 3;

using tcpx::random_token;
using tcpx::same_token;
using tcpx::Token;

// The handle of listen, that travels to the connecting side by whatever way the caller has.
struct ListenHandle {
  char magic[8];
  uint32_t version;
  uint32_t address;  // IPv4, network order
  uint16_t port;     // network order
  uint8_t sockets;   // data sockets of the connection, 1..16
  uint8_t threads;   // workers a device, 0..16
  uint32_t flags;    // kRecvSync or 0
  Token secret;      // both sides prove that they have it; it is never sent to anybody
  // Belongs to the connecting side, 0 in a fresh handle: which attempt this buffer stands for.
  uint64_t connect_state;
  uint8_t spare[80];
};
constexpr uint32_t kRecvSync = 1;  // sends wait for credits; equal on both sides
static_assert(sizeof(ListenHandle) == kNetHandleBytes, "a handle has 128 bytes");

ListenHandle make_listen_handle();  // magic and version set, all else zero
bool valid_listen_handle(const ListenHandle& handle);

// The handshake. On every socket the connecting side says hello, the listener answers with a random
// challenge, and the connecting side proves over it that it has the handle's secret. Once all
// sockets of an attempt have, the listener proves the same on the control socket, over the
// attempt's own random name and all the challenges. A proof holds for one side, attempt, socket and
// challenge: what was recorded is of no use to anybody, and no side says anything that the other
// one could.
enum class GreetingKind : uint8_t { kHello = 1, kChallenge = 2, kProof = 3, kAnswer = 4 };

struct Greeting {
  char magic[8];
  uint32_t version;
  GreetingKind kind;
  uint8_t socket;   // 0: the control socket; from 1 on the data sockets
  uint8_t sockets;  // data sockets of the connection
  uint8_t unused[1];
  Token attempt;  // random; all sockets of one attempt to connect name the same
  Token token;    // hello: zero; challenge: random; proof and answer: the proof
  uint8_t spare[16];
};
static_assert(sizeof(Greeting) == 64, "a greeting has 64 bytes");

constexpr int kMostGreeters = 1 + kMaxSockets;        // the control socket and the data sockets
using Challenges = std::array<Token, kMostGreeters>;  // by socket; zero beyond those that there are

Greeting make_hello(int socket, int sockets, const Token& attempt);
Greeting make_challenge(const Greeting& hello, const Token& challenge);
Greeting make_proof(const ListenHandle& handle, const Greeting& hello, const Token& challenge);
Greeting make_answer(const ListenHandle& handle, const Token& attempt,
                     const Challenges& challenges);

enum class GreetingVerdict {
  kWelcome,
  kNotOurs,       // other magic: some other program, or noise
  kOtherVersion,  //
  kMalformed,     // a kind, socket, count or spare byte that this greeting cannot have
  kOtherAttempt,  // well-formed, but said to somebody else
  kNoProof        // all is well but the proof
};
const char* verdict_text(GreetingVerdict verdict);

using GreetingBytes = uint8_t[sizeof(Greeting)];

// What a listener of so many data sockets makes of the first 64 bytes of a stranger.
GreetingVerdict judge_hello(const GreetingBytes& bytes, int sockets, Greeting* hello);
// What a connecting side makes of what comes back.
GreetingVerdict judge_challenge(const GreetingBytes& bytes, const Greeting& hello,
                                Token* challenge);
// What either side makes of a proof or an answer, when it knows what an honest peer would say.
GreetingVerdict judge_proof(const GreetingBytes& bytes, const Greeting& honest);

// In front of every piece of a message, on its data socket. As long as a cache line, so that the
// payload behind it is copied as fast as it would be without a header.
struct ChunkHeader {
  uint32_t magic;
  uint32_t length;    // bytes that follow
  uint64_t sequence;  // which message of the connection, from 0
  uint64_t total;     // bytes of the whole message
  uint64_t offset;    // of this piece in the message
  uint32_t flags;     // kLent or 0
  int32_t tag;        // of a sender that puts data in place: which of several receives; else 0
  uint8_t spare[24];
};
// The sender's network still looks at the bytes until they are read, and the sender waits to be
// told.
constexpr uint32_t kLent = 1;
static_assert(sizeof(ChunkHeader) == 64, "a chunk header has 64 bytes");

ChunkHeader make_chunk_header(uint64_t sequence, uint64_t total, uint64_t offset, uint32_t length,
                              uint32_t flags = 0, int32_t tag = 0);

// What a receiver says on the control connection.
constexpr size_t kNoticeBytes = 16;
using Notice = uint8_t[kNoticeBytes];

// RECV_SYNC: so many receives are posted altogether.
struct Credit {
  uint32_t magic;
  uint32_t spare;
  uint64_t posted;
};
static_assert(sizeof(Credit) == kNoticeBytes, "a credit has 16 bytes");

Credit make_credit(uint64_t posted);
// Believed when it grants more than before, and no more than a receiver can have open at once
// beyond the messages that were sent.
bool judge_credit(const Notice& bytes, uint64_t granted, uint64_t sent, uint64_t* posted);

// So many lent pieces were read from this data socket altogether, to their last byte.
struct Return {
  uint32_t magic;
  uint32_t socket;  // from 0
  uint64_t pieces;
};
static_assert(sizeof(Return) == kNoticeBytes, "a return has 16 bytes");

Return make_return(uint32_t socket, uint64_t pieces);
// Is this a return, and of which socket of so many?
bool names_return(const Notice& bytes, size_t sockets, uint32_t* socket);
// Believed when it is of more pieces than before, and of no more than were sent.
bool judge_return(const Notice& bytes, uint64_t returned, uint64_t sent, uint64_t* pieces);

// What the receiver knows about the message that a header names.
struct ExpectedMessage {
  uint64_t capacity;   // of the posted buffer
  bool announced;      // a piece of it came already
  uint64_t total;      // as that piece said
  uint64_t scheduled;  // bytes of the pieces that have begun to arrive
};

enum class ChunkVerdict {
  kGood,
  kMalformed,  // no header at all, or a piece outside its message
  kTooLarge,   // a message larger than the buffer that was posted for it
  kDisagrees,  // pieces of one message that contradict each other
};
const char* verdict_text(ChunkVerdict verdict);

// Does this header make sense by itself? Checked before its message is looked up.
bool plausible_chunk(const ChunkHeader& header);
ChunkVerdict judge_chunk(const ChunkHeader& header, const ExpectedMessage& message);

}  // namespace softtcpx
