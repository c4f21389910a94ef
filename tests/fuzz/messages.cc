// The judges of what comes after the handshake: headers of pieces, credits, and returns.
//
// Input: a byte that selects the judge; then for pieces the room of a receive and any number of
// headers for it, for credits what is granted and sent, and any number of credits; for returns how
// many sockets there are, what is returned and sent, and any number of returns.
#include "fuzz/input.h"
#include "softtcpx/protocol/wire.h"

namespace {

using namespace softtcpx;
using fuzz::Input;
using fuzz::same_bytes;
using Wide = unsigned __int128;  // where no sum wraps around

void judge_pieces_of(Input& input) {
  ExpectedMessage message{};
  message.capacity = input.take<uint64_t>();
  while (!input.empty()) {
    const auto header = input.take<ChunkHeader>();
    const Wide end = Wide{header.offset} + header.length;
    const uint32_t flags = header.length > 0 ? header.flags & kLent : 0;
    const bool plausible =
        same_bytes(header, make_chunk_header(header.sequence, header.total, header.offset,
                                             header.length, flags, header.tag)) &&
        end <= header.total && (header.length > 0 || header.total == 0);
    REQUIRE(plausible_chunk(header) == plausible);

    const bool agrees =
        !message.announced || (header.total == message.total && header.length > 0 &&
                               Wide{message.scheduled} + header.length <= message.total);
    const ChunkVerdict verdict = judge_chunk(header, message);
    REQUIRE((verdict == ChunkVerdict::kMalformed) == !plausible);
    REQUIRE((verdict == ChunkVerdict::kTooLarge) == (plausible && header.total > message.capacity));
    REQUIRE((verdict == ChunkVerdict::kGood) ==
            (plausible && header.total <= message.capacity && agrees));
    REQUIRE(verdict_text(verdict) != nullptr);
    if (verdict != ChunkVerdict::kGood) continue;  // a receiver would end here; we go on
    REQUIRE(end <= message.capacity);
    message.announced = true;
    message.total = header.total;
    message.scheduled += header.length;
    REQUIRE(message.scheduled <= message.total);
  }
}

void judge_credits_of(Input& input) {
  uint64_t granted = input.take<uint64_t>();
  const uint64_t sent = input.take<uint64_t>();
  while (!input.empty()) {
    Notice bytes;
    input.take(bytes, sizeof bytes);
    Credit credit;
    std::memcpy(&credit, bytes, sizeof credit);
    const bool honest = same_bytes(bytes, make_credit(credit.posted)) && credit.posted > granted &&
                        credit.posted >= sent && credit.posted <= Wide{sent} + kNetMaxRequests;
    const uint64_t before = granted;
    REQUIRE(judge_credit(bytes, granted, sent, &granted) == honest);
    REQUIRE(granted == (honest ? credit.posted : before));
  }
}

void judge_returns_of(Input& input) {
  const size_t sockets = input.take<uint8_t>();
  uint64_t returned = input.take<uint64_t>();
  const uint64_t sent = input.take<uint64_t>();
  while (!input.empty()) {
    Notice bytes;
    input.take(bytes, sizeof bytes);
    Return said;
    std::memcpy(&said, bytes, sizeof said);
    uint32_t socket = 0;
    const bool named =
        same_bytes(bytes, make_return(said.socket, said.pieces)) && said.socket < sockets;
    REQUIRE(names_return(bytes, sockets, &socket) == named);
    if (!named) continue;
    REQUIRE(socket == said.socket);
    const bool honest = said.pieces > returned && said.pieces <= sent;
    const uint64_t before = returned;
    REQUIRE(judge_return(bytes, returned, sent, &returned) == honest);
    REQUIRE(returned == (honest ? said.pieces : before));
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  switch (input.take<uint8_t>() % 3) {
    case 0:
      judge_pieces_of(input);
      break;
    case 1:
      judge_credits_of(input);
      break;
    case 2:
      judge_returns_of(input);
      break;
  }
  return 0;
}
