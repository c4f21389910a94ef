// A whole receiving connection on real sockets, whose peer has passed the handshake and then sends
// what it likes, in any order, on any socket, cut anywhere.
//
// Input: a byte with the number of sockets, the kind of memory and of fragments, then operations.
// Buffers have just the size that was posted, and are freed the moment that an error was told: the
// sanitizer sees every byte that is written where none may be.
#include <sys/socket.h>

#include <deque>
#include <memory>
#include <vector>

#include "fuzz/input.h"
#include "softtcpx/transfer/device.h"
#include "softtcpx/transfer/recv_comm.h"

namespace {

using namespace softtcpx;
using fuzz::Input;

constexpr uint8_t kUntouched = 0xa5;
constexpr int kTestsAtTheEnd = 8;

struct Post {
  std::unique_ptr<uint8_t[]> buffer;
  uint64_t capacity;
  Request* request;
};

class Rig {
 public:
  explicit Rig(uint8_t kind)
      : on_device_((kind & 4) != 0),
        settings_(settings_of(kind >> 3)),
        device_(0, Interface{}, settings_) {
    REQUIRE(device_.poller.open());
    Sockets sockets;
    sockets.control = connect_pair();
    for (int i = 0; i < 1 + (kind & 3) % 3; ++i) sockets.data.push_back(connect_pair());
    comm_ = std::make_unique<RecvComm>(device_, std::move(sockets));
    comm_->open_bounce();
    REQUIRE(comm_->start());
    unpack_ = comm_->offer_device();
  }

  void operate(Input& input) {
    switch (input.take<uint8_t>() % 8) {
      case 0:
      case 1:
        return send_piece(input);
      case 2:
        return send_raw(data_socket(input), input, 255);
      case 3:
        return test_oldest();
      case 4:
        return post(input.take<uint16_t>());
      case 5:
        return consume_oldest();
      case 6:
        return send_raw(peers_[0].get(), input, 31);
      case 7:
        peers_[1 + input.take<uint8_t>() % (peers_.size() - 1)].reset();
        return;
    }
  }

  // No page is missing once all that is done was consumed, whatever the peer did.
  void finish() {
    for (int i = 0; i < kTestsAtTheEnd; ++i) test_oldest();
    while (!done_.empty()) consume_oldest();
    REQUIRE(comm_->finish() == kNetSuccess);
  }

 private:
  static Settings settings_of(uint8_t fragments) {
    Settings settings;
    settings.direct_sockets = 4;
    settings.fragments = static_cast<Fragments>(fragments % 3);
    return settings;
  }

  Fd connect_pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    peers_.emplace_back(ends[1]);
    return Fd(ends[0]);
  }

  int data_socket(Input& input) {
    return peers_[1 + input.take<uint8_t>() % (peers_.size() - 1)].get();
  }

  static void send(int fd, const void* bytes, size_t count) {
    if (fd >= 0 && count > 0) (void)!::send(fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void send_raw(int fd, Input& input, uint8_t most) {
    std::vector<uint8_t> bytes(std::min<size_t>(input.take<uint8_t>() & most, input.left()));
    input.take(bytes.data(), bytes.size());
    send(fd, bytes.data(), bytes.size());
  }

  // What an honest sender might send, but for its numbers; and its end may be missing.
  void send_piece(Input& input) {
    const int fd = data_socket(input);
    const uint64_t sequence = input.take<uint8_t>();
    const uint64_t total = input.take<uint16_t>(), offset = input.take<uint16_t>();
    const uint32_t length = input.take<uint16_t>(), missing = input.take<uint8_t>();
    // Of which every second one is lent.
    const ChunkHeader header =
        make_chunk_header(sequence, total, offset, length, length % 2 == 1 ? kLent : 0);
    std::vector<uint8_t> bytes(sizeof header + length, static_cast<uint8_t>(sequence));
    std::memcpy(bytes.data(), &header, sizeof header);
    send(fd, bytes.data(), bytes.size() - std::min<size_t>(missing, bytes.size()));
  }

  void post(uint64_t capacity) {
    std::unique_ptr<uint8_t[]> buffer(new uint8_t[capacity]);
    std::memset(buffer.get(), kUntouched, capacity);
    const Region region(&device_, buffer.get(), capacity,
                        on_device_ ? Memory::kEmulated : Memory::kHost);
    void* request = nullptr;
    const int code =
        comm_->receive(buffer.get(), static_cast<int64_t>(capacity), &region, &request);
    if (code != kNetSuccess) return;
    REQUIRE(pending_.size() + done_.size() < RequestRing::kSlots);
    pending_.push_back({std::move(buffer), capacity, static_cast<Request*>(request)});
  }

  void test_oldest() {
    if (pending_.empty()) return;
    Post& post = pending_.front();
    int done = -1;
    const int code = comm_->test(*post.request, &done, nullptr);
    REQUIRE(done == 0 || done == 1);
    if (code != kNetSuccess) {
      REQUIRE(code == kNetSystemError || code == kNetInternalError);
      REQUIRE(done == 0);
      for (Post& each : pending_) each.buffer.reset();
    }
    if (done == 0) return;
    const uint64_t total = post.request->total;
    REQUIRE(total <= post.capacity);
    if (post.buffer != nullptr) {
      for (uint64_t i = on_device_ ? 0 : total; i < post.capacity; ++i)
        REQUIRE(post.buffer[i] == kUntouched);
    }
    if (on_device_ && post.capacity > 0) look_at_fragments(total);
    done_.push_back(post.request);
    pending_.pop_front();
    ++seen_;
  }

  // Together they are as long as the message, and each lies within it and within the pages.
  void look_at_fragments(uint64_t total) const {
    const uint64_t slot = seen_ % kNetUnpackSlots;
    const uint64_t count = unpack_->meta->cnt[slot];
    REQUIRE(count <= kMaxFragments);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const NetUnpackFragment& fragment = unpack_->meta->mem[slot][i];
      REQUIRE(fragment.len >= 1 && fragment.len <= kBouncePageBytes);
      REQUIRE(fragment.src_off % kBouncePageBytes + fragment.len <= kBouncePageBytes);
      REQUIRE(fragment.src_off / kBouncePageBytes < kBouncePages);
      REQUIRE(fragment.dst_off <= total && fragment.len <= total - fragment.dst_off);
      sum += fragment.len;
    }
    REQUIRE(sum == total);
  }

  void consume_oldest() {
    if (done_.empty()) return;
    REQUIRE(comm_->consumed(*done_.front()) == kNetSuccess);
    done_.pop_front();
  }

  const bool on_device_;
  const Settings settings_;
  Device device_;
  std::vector<Fd> peers_;  // the peer's ends: control, then data
  std::deque<Post> pending_;
  std::deque<Request*> done_;  // and not consumed
  uint64_t seen_ = 0;
  std::unique_ptr<RecvComm> comm_;
  NetUnpackDevice* unpack_ = nullptr;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Rig rig(input.take<uint8_t>());
  while (!input.empty()) rig.operate(input);
  rig.finish();
  return 0;
}
