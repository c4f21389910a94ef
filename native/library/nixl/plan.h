// How a request becomes messages of the data path: pure, and the same on both sides, for a message
// has as many bytes there as here.
//
// Where the bound lies. A segment of `stage_below` bytes or more travels from its place to its
// place, as one message. Smaller ones in a row are gathered, whole, into messages of at most
// `stage_bytes` through a bounce buffer on each side: a copy of 4 KiB costs a tenth of an isend and
// irecv of it. A small one between two large ones is not worth that and travels alone. Memory of a
// GPU is never staged: one message a segment. What is longer than `kMostMessage` is cut: progress
// is seen by messages that end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tcpx::nixl {

// Bytes here and there, which belong together.
struct Pair {
  uint64_t here_region;  // an index of the caller's
  uint64_t here_offset;
  uint64_t there_region;
  uint64_t there_offset;
  uint64_t bytes;
};

// Joins pairs that follow each other on both sides, and leaves out those of 0 bytes.
std::vector<Pair> coalesce(std::vector<Pair> pairs);

constexpr uint64_t kMostMessage = uint64_t{64} << 20;

struct Message {
  size_t first;  // segment
  size_t count;
  uint64_t bytes;
  bool staged;
  uint64_t offset = 0;  // in its segment
};

struct StageRule {
  uint64_t below = 0;  // 0: nothing is staged
  uint64_t bytes = 1;
};

// `bytes_of(i)` for i in 0 to count - 1; none is 0.
template <typename BytesOf>
std::vector<Message> plan(size_t count, const StageRule& rule, const BytesOf& bytes_of) {
  std::vector<Message> messages;
  for (size_t i = 0; i < count;) {
    Message message{i, 1, bytes_of(i), false};
    if (message.bytes < rule.below) {
      while (i + message.count < count) {
        const uint64_t next = bytes_of(i + message.count);
        if (next >= rule.below || message.bytes + next > rule.bytes) break;
        message.bytes += next;
        ++message.count;
      }
      message.staged = message.count > 1;
    }
    i += message.count;
    for (uint64_t left = message.bytes; left > kMostMessage && !message.staged;) {
      left -= message.bytes = kMostMessage;
      messages.push_back(message);
      message.offset += kMostMessage;
      message.bytes = left;
    }
    messages.push_back(message);
  }
  return messages;
}

}  // namespace tcpx::nixl
