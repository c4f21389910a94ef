// softtcpx's sends without a copy, where the kernel takes less than it is given, or nothing, or
// lends no pages: what a sender and a receiver ask of it passes through this file.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <cerrno>
#include <mutex>

#include "softtcpx/transfer/send_comm.h"
#include "softtcpx_receiver.h"

using namespace softtcpx;

namespace {

constexpr uint32_t kPiece = 65536;  // the least that is lent
constexpr int kEverything = -1;

std::atomic<bool> g_lends{true};
// Set before there is a worker.
int g_of_a_header = kEverything;  // bytes that one call takes of it
int g_of_a_piece = kEverything;
std::atomic<int> g_refusals{0};               // splices yet that find no memory
std::atomic<int> g_notice_room{kEverything};  // bytes of notices yet that are taken

// What a data socket was given: by which call, whether more was said to come, up to which byte.
struct Given {
  bool spliced, more;
  uint64_t end;
};
std::mutex g_mutex;  // of the rest
std::vector<Given> g_given;

ssize_t given(ssize_t taken, bool spliced, bool more) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const uint64_t before = g_given.empty() ? 0 : g_given.back().end;
  if (taken > 0) g_given.push_back({spliced, more, before + static_cast<uint64_t>(taken)});
  return taken;
}

// Once it was given all that.
std::vector<Given> all_given(uint64_t bytes) {
  std::vector<Given> all;
  CHECK(until([&] {
    const std::lock_guard<std::mutex> lock(g_mutex);
    all = g_given;
    return !all.empty() && all.back().end == bytes;
  }));
  return all;
}

// A GPU whose memory is the host's, and whose copies have landed at once.
const CudaDriver kDriver = [] {
  CudaDriver driver{};
  driver.ctx_get_current = [](CudaContext* context) {
    *context = &g_given;
    return 0;
  };
  driver.thread_exchange_stream_capture_mode = [](int*) { return 0; };
  driver.mem_host_register = [](void*, size_t, unsigned) { return 0; };
  driver.mem_host_unregister = [](void*) { return 0; };
  driver.mem_host_get_device_pointer = [](CudaAddress* address, void* memory, unsigned) {
    *address = reinterpret_cast<CudaAddress>(memory);
    return 0;
  };
  driver.memcpy_dtoh_async = [](void* to, CudaAddress from, size_t bytes, CudaStream) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return 0;
  };
  driver.stream_create = [](CudaStream* stream, unsigned) {
    *stream = &g_given;
    return 0;
  };
  driver.stream_destroy = [](CudaStream) { return 0; };
  driver.stream_query = [](CudaStream) { return 0; };
  driver.stream_write_value32 = [](CudaStream, CudaAddress address, uint32_t value, unsigned) {
    __atomic_store_n(reinterpret_cast<uint32_t*>(address), value, __ATOMIC_RELEASE);
    return 0;
  };
  return driver;
}();
const Gpu kGpu{&kDriver, &g_given, 0};

Settings lending(int64_t direct_sockets) {
  Settings settings = sleepy(direct_sockets);
  settings.chunk_bytes = settings.copy_bytes = 8 * kPiece;
  settings.copies = 8;
  settings.zero_copy = 1;
  return settings;
}

// A sending connection with a worker, whose peer is the test.
class Sender {
 public:
  explicit Sender(Device& device) : device_(device), content_(4 * kPiece + 1000) {
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<uint8_t>(i * i >> 5);
    Sockets sockets;
    sockets.control = one_of_a_pair(peers_);
    sockets.data.push_back(one_of_a_pair(peers_));
    sockets.threads = 1;
    comm_ = std::make_unique<SendComm>(device, std::move(sockets));
    CHECK(comm_->start());
  }

  // GPU memory; before that, sends of host memory only.
  void serve() { CHECK(comm_->serve_gpu_memory(kGpu)); }

  void* post(uint64_t offset, uint32_t bytes, Memory memory = Memory::kGpu) {
    const Region region(&device_, content_.data(), content_.size(), memory, kGpu);
    void* request = nullptr;
    CHECK_EQ(comm_->send(&content_[offset], bytes, &region, &request), int{kNetSuccess});
    return request;
  }
  void send(uint64_t offset, uint32_t bytes, Memory memory = Memory::kGpu) {
    CHECK_EQ(code_of(post(offset, bytes, memory)), int{kNetSuccess});
  }
  // What a test of it comes to, which is done or has failed.
  int code_of(void* request) {
    int done = 0, code = kNetSuccess;
    CHECK(until([&] {
      code = comm_->test(*static_cast<Request*>(request), &done, nullptr);
      return done == 1 || code != kNetSuccess;
    }));
    return code;
  }
  void say(const Return& notice) {
    CHECK_EQ(::send(peers_[0].get(), &notice, sizeof notice, MSG_DONTWAIT), ssize_t{sizeof notice});
  }
  // A message of one piece has arrived.
  void expect(uint64_t sequence, uint64_t offset, uint32_t bytes, bool lent = true) {
    std::vector<uint8_t> heard(sizeof(ChunkHeader) + bytes);
    size_t have = 0;
    CHECK(until([&] {
      const ssize_t got = ::recv(peers_[1].get(), &heard[have], heard.size() - have, MSG_DONTWAIT);
      have += got > 0 ? static_cast<size_t>(got) : 0;
      return have == heard.size();
    }));
    const ChunkHeader header = make_chunk_header(sequence, bytes, 0, bytes, lent ? kLent : 0);
    CHECK_EQ(std::memcmp(heard.data(), &header, sizeof header), 0);
    CHECK_EQ(std::memcmp(&heard[sizeof header], &content_[offset], bytes), 0);
  }
  int unread() const {
    int bytes = -1;
    CHECK_EQ(::ioctl(peers_[1].get(), FIONREAD, &bytes), 0);
    return bytes;
  }

 private:
  Device& device_;
  std::vector<uint8_t> content_;
  std::vector<Fd> peers_;  // control, then data
  std::unique_ptr<SendComm> comm_;
};

}  // namespace

extern "C" {
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_splice(int from, off_t*, int to, off_t*, size_t count, unsigned flags);
ssize_t __real_vmsplice(int fd, const iovec* parts, size_t count, unsigned flags);
ssize_t __real_send(int fd, const void* bytes, size_t count, int flags);

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  const bool more = (flags & MSG_MORE) != 0;
  if (g_of_a_header == kEverything || message->msg_iov[0].iov_len > sizeof(ChunkHeader))
    return given(__real_sendmsg(fd, message, flags), false, more);
  const size_t part = std::min(message->msg_iov[0].iov_len, static_cast<size_t>(g_of_a_header));
  return given(__real_send(fd, message->msg_iov[0].iov_base, part, flags), false, more);
}

ssize_t __wrap_splice(int from, off_t*, int to, off_t*, size_t count, unsigned flags) {
  if (g_refusals > 0) {
    --g_refusals;
    errno = ENOBUFS;
    return -1;
  }
  if (g_of_a_piece == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (g_of_a_piece != kEverything) count = std::min(count, static_cast<size_t>(g_of_a_piece));
  return given(__real_splice(from, nullptr, to, nullptr, count, flags), true,
               (flags & SPLICE_F_MORE) != 0);
}

ssize_t __wrap_vmsplice(int fd, const iovec* parts, size_t count, unsigned flags) {
  if (g_lends) return __real_vmsplice(fd, parts, count, flags);
  errno = ENOMEM;
  return -1;
}

ssize_t __wrap_send(int fd, const void* bytes, size_t count, int flags) {
  if (count > kNoticeBytes) {
    const size_t most = g_of_a_piece != kEverything ? static_cast<size_t>(g_of_a_piece) : count;
    return __real_send(fd, bytes, std::min(count, most), flags);
  }
  if (g_notice_room == kEverything) return __real_send(fd, bytes, count, flags);
  const size_t taken = std::min(count, static_cast<size_t>(g_notice_room));
  g_notice_room -= static_cast<int>(taken);
  if (taken > 0) return __real_send(fd, bytes, taken, flags);
  errno = EAGAIN;
  return -1;
}
}

TEST(nothing_is_lent_before_its_header_is_whole) {
  const Settings settings = lending(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  g_of_a_header = 24;
  g_of_a_piece = 10'000;
  Sender sender(device);
  sender.serve();
  for (uint32_t k = 0; k < 3; ++k) {
    sender.send(k * kPiece, kPiece + k);
    sender.expect(k, k * kPiece, kPiece + k);
  }
}

TEST(what_cannot_be_lent_just_now_is_copied) {
  const Settings settings = lending(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  g_of_a_piece = 10'000;
  Sender sender(device);
  sender.serve();
  g_lends = false;
  sender.send(7, kPiece + 1);
  sender.expect(0, 7, kPiece + 1);
}

// What is held back until more comes is sent 200 ms later where nothing does.
TEST(more_is_said_to_come_within_a_piece_and_never_at_its_end) {
  const Settings settings = lending(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  Sender sender(device);
  sender.serve();
  const uint32_t bytes = 4 * kPiece + 1000;  // more than a pipe holds
  sender.send(0, bytes);
  sender.expect(0, 0, bytes);
  const uint64_t end = sizeof(ChunkHeader) + bytes;
  for (const Given& call : all_given(end)) {
    CHECK_EQ(call.spliced, call.end > sizeof(ChunkHeader));
    if (call.end == sizeof(ChunkHeader)) CHECK(call.more);
    if (call.end == end) CHECK(!call.more);
  }
  CHECK(all_given(end)[1].more);

  g_given.clear();
  sender.send(0, 100);
  sender.expect(1, 0, 100, /*lent=*/false);
  sender.send(0, kPiece, Memory::kHost);
  sender.expect(2, 0, kPiece, /*lent=*/false);
  for (const Given& call : all_given(2 * sizeof(ChunkHeader) + 100 + kPiece)) CHECK(!call.more);
}

TEST(what_found_no_memory_is_sent_without_an_event) {
  constexpr uint32_t kBefore =
      100;  // until epoll has told of the room that there is from the start
  const Settings settings = lending(/*direct_sockets=*/0);
  Device device(0, Interface{}, settings);
  Sender sender(device);
  sender.serve();
  for (uint32_t k = 0; k < kBefore; ++k) sender.send(k, 1, Memory::kHost);
  g_refusals = 3;
  sender.post(0, kPiece);  // while it is not tested, its socket is one of those that wait
  constexpr int kAll = (kBefore + 1) * sizeof(ChunkHeader) + kBefore + kPiece;
  CHECK(until([&] { return sender.unread() == kAll; }));
  CHECK_EQ(g_refusals.load(), 0);
  for (uint32_t k = 0; k < kBefore; ++k) sender.expect(k, k, 1, /*lent=*/false);
  sender.expect(kBefore, 0, kPiece);
}

TEST(gpu_memory_is_served_under_the_eyes_of_a_worker) {
  const Settings settings = lending(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  Sender sender(device);
  const uint32_t bytes = 4 * kPiece;  // more than the socket holds
  sender.post(0, bytes, Memory::kHost);
  CHECK(until([&] { return sender.unread() > 0; }));
  sender.serve();
  sender.post(0, kPiece);
  sender.expect(0, 0, bytes, /*lent=*/false);
  sender.expect(1, 0, kPiece);
}

TEST(a_piece_that_was_sent_in_part_is_not_taken_back) {
  const Settings settings = lending(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  g_of_a_piece = 0;
  Sender sender(device);
  sender.serve();
  sender.send(0, kPiece);
  void* const behind = sender.post(0, 1, Memory::kHost);
  CHECK(until([&] { return sender.unread() == int{sizeof(ChunkHeader)}; }));
  sender.say(make_return(0, 1));
  CHECK_EQ(sender.code_of(behind), int{kNetInternalError});
}

TEST(what_a_receiver_could_not_tell_it_tells_without_more_pieces) {
  const Settings settings = sleepy(/*direct_sockets=*/4);
  Device device(0, Interface{}, settings);
  CHECK(device.poller.open());
  Receiver receiver(device, 1, 0);
  const auto arrive = [&] {
    CHECK_EQ(receiver.post(), int{kNetSuccess});
    receiver.send(0, kLent);
    CHECK(until([&] { return receiver.test(); }));
  };
  const auto heard = [&](const Return& expected) {
    Notice notice;
    const ssize_t got = ::recv(receiver.control_of_the_peer(), notice, sizeof notice, MSG_DONTWAIT);
    return got == ssize_t{sizeof notice} && std::memcmp(notice, &expected, sizeof notice) == 0;
  };
  g_notice_room = 5;
  arrive();
  arrive();
  arrive();
  CHECK_EQ(receiver.post(), int{kNetSuccess});
  CHECK(!receiver.test());
  g_notice_room = 0;
  CHECK(!receiver.test());
  g_notice_room = kEverything;
  CHECK(!receiver.test());
  CHECK(heard(make_return(0, 1)));
  CHECK(heard(make_return(0, 3)));
  CHECK(!heard(make_return(0, 3)));
}

CHECK_MAIN()
