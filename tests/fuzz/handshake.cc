// The judges of a handshake: they accept what an honest peer sends, byte for byte, and nothing
// else.
//
// Input: a byte that selects the judge, a byte for the number of sockets, for a challenge, a proof
// or an answer one for the socket, and the bytes to judge.
#include "fuzz/input.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/protocol/wire.h"

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
const Token kAttempt = token_of('c');

// As the seeds' listener gives it; `sockets` is what is fuzzed.
ListenHandle handle_of(int sockets) {
  ListenHandle handle = make_listen_handle();
  handle.sockets = static_cast<uint8_t>(sockets);
  handle.threads = 1;
  handle.flags = kRecvSync;
  handle.secret = token_of('s');
  return handle;
}

Challenges challenges_of(int sockets) {
  Challenges challenges{};
  for (int i = 0; i <= sockets; ++i) challenges[i] = token_of(static_cast<uint8_t>('0' + i));
  return challenges;
}

void judge_hello_of(Input& input, int sockets) {
  GreetingBytes bytes;
  input.take(bytes, sizeof bytes);
  Greeting hello;
  const GreetingVerdict verdict = judge_hello(bytes, sockets, &hello);
  REQUIRE(same_bytes(hello, bytes));
  bool honest = false;
  for (int i = 0; i <= sockets; ++i)
    honest |= same_bytes(bytes, make_hello(i, sockets, hello.attempt));
  REQUIRE((verdict == GreetingVerdict::kWelcome) == honest);
  REQUIRE(verdict_text(verdict) != nullptr);
}

void judge_challenge_of(Input& input, int sockets) {
  const Greeting hello = make_hello(input.take<uint8_t>() % (1 + sockets), sockets, kAttempt);
  GreetingBytes bytes;
  input.take(bytes, sizeof bytes);
  Token challenge;
  const GreetingVerdict verdict = judge_challenge(bytes, hello, &challenge);
  const bool honest = same_bytes(bytes, make_challenge(hello, challenge));
  REQUIRE((verdict == GreetingVerdict::kWelcome) == honest);
  REQUIRE(verdict_text(verdict) != nullptr);
}

// A proof of one socket, or the answer to all.
void judge_proof_of(Input& input, int sockets) {
  const int socket = input.take<uint8_t>() % (2 + sockets);
  const ListenHandle handle = handle_of(sockets);
  const Challenges challenges = challenges_of(sockets);
  const Greeting honest =
      socket <= sockets
          ? make_proof(handle, make_hello(socket, sockets, kAttempt), challenges[socket])
          : make_answer(handle, kAttempt, challenges);
  GreetingBytes bytes;
  input.take(bytes, sizeof bytes);
  Greeting said, all_but_the_proof;
  std::memcpy(&said, bytes, sizeof said);
  all_but_the_proof = honest;
  all_but_the_proof.token = said.token;
  const GreetingVerdict verdict = judge_proof(bytes, honest);
  REQUIRE((verdict == GreetingVerdict::kWelcome) == same_bytes(bytes, honest));
  REQUIRE((verdict == GreetingVerdict::kNoProof) ==
          (same_bytes(bytes, all_but_the_proof) && !same_bytes(bytes, honest)));
  REQUIRE(verdict_text(verdict) != nullptr);
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
  const int judge = input.take<uint8_t>() % 4;
  const int sockets = 1 + input.take<uint8_t>() % kMaxSockets;
  if (judge == 0) judge_hello_of(input, sockets);
  if (judge == 1) judge_challenge_of(input, sockets);
  if (judge == 2) judge_proof_of(input, sockets);
  if (judge == 3) judge_handle_of(input);
  return 0;
}
