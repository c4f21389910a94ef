// The judges of a handshake: they accept what an honest peer sends, byte for byte, and nothing
// else.
//
// Input: a byte that selects the judge, a byte for the number of sockets, and the bytes to judge.
#include "fuzz/input.h"
#include "softtcpx/settings.h"
#include "softtcpx/wire.h"

namespace {

using namespace softtcpx;
using fuzz::Input;
using fuzz::same_bytes;

// make_seeds.py knows these.
Token token_of(uint8_t byte) {
  Token token;
  std::memset(token.bytes, byte, sizeof token.bytes);
  return token;
}
const Token kSecret = token_of('s'), kAnswer = token_of('a'), kConnection = token_of('c');

void judge_hello_of(Input& input, int sockets) {
  uint8_t bytes[sizeof(Hello)];
  input.take(bytes, sizeof bytes);
  Hello hello;
  const HelloVerdict verdict = judge_hello(bytes, kSecret, sockets, &hello);
  REQUIRE(same_bytes(hello, bytes));
  // Every hello that an honest peer may send; with its own proof, and with ours.
  bool honest = false, well_formed = false;
  for (int i = -1; i < sockets; ++i) {
    const HelloKind kind = i < 0 ? HelloKind::kControl : HelloKind::kData;
    const int index = i < 0 ? 0 : i;
    honest |= same_bytes(bytes, make_hello(kind, index, sockets, hello.connection, kSecret));
    well_formed |=
        same_bytes(bytes, make_hello(kind, index, sockets, hello.connection, hello.proof));
  }
  REQUIRE((verdict == HelloVerdict::kWelcome) == honest);
  REQUIRE((verdict == HelloVerdict::kForeignSecret) == (well_formed && !honest));
  REQUIRE(verdict_text(verdict) != nullptr);
}

void judge_answer_of(Input& input, int sockets) {
  uint8_t bytes[sizeof(Hello)];
  input.take(bytes, sizeof bytes);
  const HelloVerdict verdict = judge_answer(bytes, kAnswer, kConnection, sockets);
  const Hello honest = make_hello(HelloKind::kAnswer, 0, sockets, kConnection, kAnswer);
  REQUIRE((verdict == HelloVerdict::kWelcome) == same_bytes(bytes, honest));
}

void judge_handle_of(Input& input) {
  ListenHandle handle;
  input.take(&handle, sizeof handle);
  ListenHandle honest = make_listen_handle();
  honest.address = handle.address;
  honest.port = handle.port;
  honest.sockets = handle.sockets;
  honest.threads = handle.threads;
  honest.flags = handle.flags;
  honest.secret = handle.secret;
  honest.answer = handle.answer;
  honest.connect_state = handle.connect_state;
  std::memcpy(honest.spare, handle.spare, sizeof honest.spare);
  const bool usable = handle.port != 0 && handle.sockets >= 1 && handle.sockets <= kMaxSockets &&
                      handle.threads <= kMaxThreads &&
                      (handle.flags == 0 || handle.flags == kRecvSync);
  REQUIRE(valid_listen_handle(handle) == (same_bytes(handle, honest) && usable));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const int judge = input.take<uint8_t>() % 3;
  const int sockets = 1 + input.take<uint8_t>() % kMaxSockets;
  if (judge == 0) judge_hello_of(input, sockets);
  if (judge == 1) judge_answer_of(input, sockets);
  if (judge == 2) judge_handle_of(input);
  return 0;
}
