// Every byte format of softtcpx, and pure functions that judge bytes: no sockets, no memory, no
// log.
//
// A number is little-endian on the wire as in memory; the asserts below stop any other build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "net/abi_v7.h"

namespace softtcpx {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little-endian");

constexpr uint32_t kWireVersion = 1;

struct Token {  // 128 random bits
  uint8_t bytes[16];
};

// In constant time, so that a stranger cannot guess a secret byte by byte.
bool same_token(const Token& a, const Token& b);
// From the kernel; false when it has none to give.
bool random_token(Token* token);

// The handle of listen, that travels to the connecting side by whatever way the caller has.
struct ListenHandle {
  char magic[8];
  uint32_t version;
  uint32_t address;  // IPv4, network order
  uint16_t port;     // network order
  uint8_t sockets;   // data sockets of the connection, 1..8
  uint8_t threads;   // workers a device, 0..8
  uint32_t flags;    // kRecvSync or 0
  Token secret;      // the connecting side proves itself with it
  Token answer;      // the listening side proves itself with it; it is never sent to the listener
  // Belongs to the connecting side, 0 in a fresh handle: which attempt this buffer stands for.
  uint64_t connect_state;
  uint8_t spare[64];
};
constexpr uint32_t kRecvSync = 1;  // sends wait for credits; equal on both sides
static_assert(sizeof(ListenHandle) == kNetHandleBytes, "a handle has 128 bytes");

ListenHandle make_listen_handle();  // magic and version set, all else zero
bool valid_listen_handle(const ListenHandle& handle);

// First on every socket, from the connecting side; and the listener's answer on the control one.
enum class HelloKind : uint8_t { kControl = 1, kData = 2, kAnswer = 3 };

struct Hello {
  char magic[8];
  uint32_t version;
  HelloKind kind;
  uint8_t index;    // which data socket; 0 for the others
  uint8_t sockets;  // data sockets of the connection
  uint8_t unused[1];
  Token connection;  // all sockets of one attempt name the same
  Token proof;       // the handle's secret, or its answer
  uint8_t spare[16];
};
static_assert(sizeof(Hello) == 64, "a hello has 64 bytes");

Hello make_hello(HelloKind kind, int index, int sockets, const Token& connection,
                 const Token& proof);

enum class HelloVerdict {
  kWelcome,
  kNotOurs,         // other magic: some other program, or noise
  kOtherVersion,    //
  kMalformed,       // a kind, index, count or spare byte that no hello has
  kForeignSecret,   // well-formed, but meant for another listener
  kOtherConnection  // an answer to a question that we did not ask
};
const char* verdict_text(HelloVerdict verdict);

// What a listener makes of the first 64 bytes of a stranger.
HelloVerdict judge_hello(const uint8_t (&bytes)[sizeof(Hello)], const Token& secret, int sockets,
                         Hello* hello);
// What a connecting side makes of the first 64 bytes on its control socket.
HelloVerdict judge_answer(const uint8_t (&bytes)[sizeof(Hello)], const Token& answer,
                          const Token& connection, int sockets);

// In front of every piece of a message, on its data socket. As long as a cache line, so that the
// payload behind it is copied as fast as it would be without a header.
struct ChunkHeader {
  uint32_t magic;
  uint32_t length;    // bytes that follow
  uint64_t sequence;  // which message of the connection, from 0
  uint64_t total;     // bytes of the whole message
  uint64_t offset;    // of this piece in the message
  uint8_t spare[32];
};
static_assert(sizeof(ChunkHeader) == 64, "a chunk header has 64 bytes");

ChunkHeader make_chunk_header(uint64_t sequence, uint64_t total, uint64_t offset, uint32_t length);

// RECV_SYNC: on the control connection, from the receiver: so many receives are posted altogether.
struct Credit {
  uint32_t magic;
  uint32_t spare;
  uint64_t posted;
};
static_assert(sizeof(Credit) == 16, "a credit has 16 bytes");

Credit make_credit(uint64_t posted);
// Believed when it grants more than before, and no more than a receiver can have open at once
// beyond the messages that were sent.
bool judge_credit(const uint8_t (&bytes)[sizeof(Credit)], uint64_t granted, uint64_t sent,
                  uint64_t* posted);

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
