// What a receiving connection of softtcpx takes out of its socket by each read: reads pass through
// this file.
#include <sys/uio.h>

#include <algorithm>
#include <numeric>

#include "softtcpx_receiver.h"

using namespace softtcpx;

namespace {

constexpr uint64_t kSmall = 8, kLarge = 40000;
constexpr uint64_t kMost = kLarge;

// Bytes that came anywhere but to where they are to be.
uint64_t g_aside = 0;
// Calls of recv that had some: one that looks, and one that takes it out then, are two.
int g_recvs = 0;

uint8_t value_of(uint64_t message, uint64_t at) {
  return static_cast<uint8_t>(1 + message * 7 + at * 2654435761u / 65536);
}

// One data socket; this thread moves the bytes, and tells how many of them come at a time.
class Scene {
 public:
  explicit Scene(const std::vector<uint64_t>& sizes) : sizes_(sizes), memory_(sizes.size()) {
    Sockets sockets;
    sockets.control = one_of_a_pair(peers_);
    sockets.data.push_back(one_of_a_pair(peers_));
    comm_ = std::make_unique<RecvComm>(device_, std::move(sockets));
    comm_->open_bounce();
    CHECK(device_.poller.open() && comm_->start());
  }
  ~Scene() { CHECK_EQ(comm_->finish(), int{kNetSuccess}); }

  void post() {
    std::vector<uint8_t>& memory = memory_[pending_.size()];
    memory.assign(kMost, 0);
    const Region region(&device_, memory.data(), memory.size(), Memory::kHost, comm_->gpu());
    void* request = nullptr;
    CHECK_EQ(comm_->receive(memory.data(), kMost, &region, &request), int{kNetSuccess});
    pending_.push_back(static_cast<Request*>(request));
  }
  std::vector<uint8_t> wire(uint64_t message) const {
    std::vector<uint8_t> bytes(sizeof(ChunkHeader) + sizes_[message]);
    const ChunkHeader header =
        make_chunk_header(message, sizes_[message], 0, static_cast<uint32_t>(sizes_[message]), 0);
    std::memcpy(bytes.data(), &header, sizeof header);
    for (uint64_t i = 0; i < sizes_[message]; ++i) bytes[sizeof header + i] = value_of(message, i);
    return bytes;
  }
  void send(const uint8_t* bytes, size_t count) {
    CHECK_EQ(::send(peers_[1].get(), bytes, count, MSG_DONTWAIT), static_cast<ssize_t>(count));
  }
  // All that has come is read.
  void look() {
    int done = 0;
    CHECK_EQ(comm_->test(*pending_[done_], &done, nullptr), int{kNetSuccess});
    if (done == 0) return;
    CHECK_EQ(comm_->consumed(*pending_[done_]), int{kNetSuccess});
    ++done_;
  }
  // The oldest that is not done yet, when it has come.
  void finish_one() {
    const size_t before = done_;
    CHECK(until([&] {
      look();
      return done_ > before;
    }));
    for (uint64_t i = 0; i < kMost; ++i)
      CHECK_EQ(memory_[before][i], i < sizes_[before] ? value_of(before, i) : 0);
  }

 private:
  const std::vector<uint64_t> sizes_;
  std::vector<std::vector<uint8_t>> memory_;
  const Settings settings_ = sleepy(/*direct_sockets=*/4);  // so that it looks before it takes
  Device device_{0, Interface{}, settings_};
  std::vector<Fd> peers_;  // control, then data
  std::unique_ptr<RecvComm> comm_;
  std::vector<Request*> pending_;
  size_t done_ = 0;
};

const std::vector<uint64_t> kMixed = {kSmall, kLarge, kSmall, kSmall, kLarge, kLarge, 0,
                                      kLarge, 8192,   kLarge, 8300,   9000,   kSmall, kLarge};

}  // namespace

extern "C" {
ssize_t __real_recv(int fd, void* bytes, size_t count, int flags);
ssize_t __real_readv(int fd, const iovec* parts, int count);

ssize_t __wrap_recv(int fd, void* bytes, size_t count, int flags) {
  const ssize_t got = __real_recv(fd, bytes, count, flags);
  g_recvs += got > 0;
  if (got > 0 && (flags & MSG_TRUNC) == 0) g_aside += static_cast<uint64_t>(got);
  return got;
}

ssize_t __wrap_readv(int fd, const iovec* parts, int count) {
  const ssize_t got = __real_readv(fd, parts, count);
  if (got > static_cast<ssize_t>(parts[0].iov_len))
    g_aside += static_cast<uint64_t>(got) - parts[0].iov_len;
  return got;
}
}

TEST(of_a_large_message_behind_a_large_one_only_the_header_is_read_apart) {
  Scene scene({kLarge, kLarge, kLarge});
  for (uint64_t message = 0; message < 3; ++message) {
    scene.post();
    for (int i = 0; i < 4; ++i) scene.look();  // in vain: a message is waited for
    g_aside = 0;
    g_recvs = 0;
    const std::vector<uint8_t> wire = scene.wire(message);
    scene.send(wire.data(), wire.size());
    scene.finish_one();
    if (message == 0) continue;
    CHECK_EQ(g_aside, sizeof(ChunkHeader));
    CHECK_EQ(g_recvs, 1);
  }
}

TEST(in_a_stream_of_large_messages_only_headers_are_read_apart) {
  Scene scene({kLarge, kLarge, kLarge, kLarge});
  g_aside = 0;
  uint64_t before = 0;
  for (uint64_t message = 0; message < 4; ++message) {
    scene.post();
    const std::vector<uint8_t> wire = scene.wire(message);
    scene.send(wire.data(), wire.size());
  }
  for (uint64_t message = 0; message < 4; ++message) {
    scene.finish_one();
    if (message == 0) before = g_aside;
  }
  CHECK(g_aside - before <= 3 * sizeof(ChunkHeader));
}

TEST(a_small_message_comes_by_one_read_once_the_message_before_was_small) {
  Scene scene({kLarge, kSmall, kSmall});
  for (uint64_t message = 0; message < 3; ++message) {
    scene.post();
    g_aside = 0;
    const std::vector<uint8_t> wire = scene.wire(message);
    scene.send(wire.data(), wire.size());
    scene.finish_one();
  }
  CHECK_EQ(g_aside, sizeof(ChunkHeader) + kSmall);
}

TEST(messages_of_all_sizes_arrive_whole_in_any_order_of_them) {
  Scene scene(kMixed);
  for (uint64_t message = 0; message < kMixed.size(); ++message) {
    scene.post();
    const std::vector<uint8_t> wire = scene.wire(message);
    scene.send(wire.data(), wire.size());
    if (message % 3 == 2) scene.finish_one();  // others are behind each other in the socket
  }
  for (uint64_t message = 0; message < kMixed.size() - kMixed.size() / 3; ++message)
    scene.finish_one();
}

TEST(a_header_that_comes_in_two_parts_is_put_together_behind_any_message) {
  for (size_t part = 1; part < sizeof(ChunkHeader); ++part) {
    Scene scene(kMixed);
    std::vector<uint8_t> wire = scene.wire(0);
    for (uint64_t message = 0; message < kMixed.size(); ++message) {
      scene.post();
      const size_t kept = std::min(part, wire.size());
      scene.send(wire.data(), kept);
      scene.look();
      scene.send(wire.data() + kept, wire.size() - kept);
      scene.finish_one();
      if (message + 1 < kMixed.size()) wire = scene.wire(message + 1);
    }
  }
}

CHECK_MAIN()
