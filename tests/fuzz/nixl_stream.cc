// The control stream of NIXL's backend: whatever comes is taken apart within its bounds or refused,
// and what is taken is what an honest writer writes, byte for byte.
//
// Input: a byte that selects a stream of frames, connection info or metadata, and the bytes.
#include <algorithm>
#include <string>

#include "fuzz/input.h"
#include "library/nixl/wire.h"

namespace {

using namespace tcpx::nixl;

std::string rewritten(const Frame& frame) {
  std::string out;
  switch (frame.type) {
    case FrameType::kChallenge:
      write_challenge(out, read_challenge(frame.body));
      break;
    case FrameType::kHello:
    case FrameType::kWelcome:
      write_greeting(out, frame.type, read_greeting(frame.body));
      break;
    case FrameType::kRefuse:
      write_text(out, frame.type, read_text(frame.body, kMaxReason));
      break;
    case FrameType::kNotify:
      write_text(out, frame.type, read_text(frame.body, kMaxNotification));
      break;
    case FrameType::kBegun:
      Fields(frame.body).end("a frame without a body");
      write_begun(out);
      break;
    case FrameType::kUp:
      Fields(frame.body).end("a frame without a body");
      write_up(out);
      break;
    case FrameType::kWrite:
    case FrameType::kRead: {
      const TransferFrame transfer = read_transfer(frame.body);
      const size_t bytes = transfer.payload.size();
      char* payload = write_transfer(out, frame.type, transfer, bytes);
      std::copy(transfer.payload.begin(), transfer.payload.end(), payload);
      break;
    }
    case FrameType::kGrant:
    case FrameType::kCredit:
    case FrameType::kCancel:
      write_id(out, frame.type, read_id(frame.body));
      break;
    case FrameType::kDone:
      write_done(out, read_done(frame.body));
      break;
    case FrameType::kData: {
      const DataFrame data = read_data(frame.body);
      char* payload = write_data(out, data.id, data.payload.size());
      std::copy(data.payload.begin(), data.payload.end(), payload);
      break;
    }
  }
  return out;
}

// In pieces, as a socket gives them; all that is taken must come out again.
void take_apart(const std::string& bytes) {
  FrameReader reader;
  size_t at = 0, taken = 0;
  while (at < bytes.size()) {
    const size_t piece = std::min<size_t>(bytes.size() - at, 1 + at % 61);
    std::copy_n(bytes.data() + at, piece, reader.room(piece));
    reader.filled(piece);
    at += piece;
    Frame frame;
    while (reader.next(frame)) {
      const std::string again = rewritten(frame);
      REQUIRE(bytes.compare(taken, again.size(), again) == 0);
      taken += again.size();
      REQUIRE(taken <= at);
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 3 == 0) take_apart(bytes);
    if (data[0] % 3 == 1) {
      REQUIRE(write_connection_info(read_connection_info(bytes)) == bytes);
    }
    if (data[0] % 3 == 2) REQUIRE(write_region_info(read_region_info(bytes)) == bytes);
  } catch (const WireError&) {
    // Refused.
  }
  return 0;
}
