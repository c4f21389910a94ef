// What plain TCP over loopback moves between as many threads as a run in GPUs' memory has, without
// any plugin: the ceiling of its pairs (one way) and its rings (both ways, where each thread sends
// and receives). Messages lie in memory cut among the streams, and are received into its pages in
// shuffled order. Congestion control is softtcpx's: SOFTTCPX_CONGESTION or cubic, and the kernel's
// own where that is refused. JSON on stdout, all samples; exit 1 where a byte of the last lap is
// wrong.
//
//   bench_streams STREAMS [SAMPLES [MIB_A_SIDE]]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPagesACall = 128;
constexpr size_t kBytesACall = kPage * kPagesACall;
constexpr auto kSample = std::chrono::milliseconds(250);
constexpr auto kLook = std::chrono::milliseconds(5);

void check(bool good, const char* call) {
  if (!good) throw std::system_error(errno, std::generic_category(), call);
}

void set_congestion(int fd) {
  const char* name = getenv("SOFTTCPX_CONGESTION");
  if (name == nullptr || *name == '\0') name = "cubic";
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, static_cast<socklen_t>(strlen(name)));
}

std::string congestion_of(int fd) {
  char name[64] = {};
  socklen_t length = sizeof name - 1;
  check(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0, "getsockopt");
  return name;
}

[[noreturn]] void fail(const std::exception& error) {
  fprintf(stderr, "bench_streams: %s\n", error.what());
  _exit(2);
}

// Bytes that go round and round from one memory into the pages of another.
class Stream {
 public:
  Stream(size_t pages, uint32_t seed) : from_(pages * kPage), to_(pages * kPage), order_(pages) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < from_.size(); i += 4) {
      const uint32_t word = random();
      memcpy(&from_[i], &word, 4);
    }
    for (size_t i = 0; i < to_.size(); ++i) to_[i] = static_cast<uint8_t>(~from_[i]);
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random);
    connect();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    close(sender_);
    close(receiver_);
  }

  // False where the socket takes nothing, or has nothing.
  bool send_some() {
    const size_t at = sent_ % from_.size();
    const size_t bytes = std::min(kBytesACall, from_.size() - at);
    return moved(send(sender_, &from_[at], bytes, MSG_DONTWAIT | MSG_NOSIGNAL), "send", &sent_);
  }
  bool receive_some() {
    iovec parts[kPagesACall];
    size_t page = received_ / kPage % order_.size(), inside = received_ % kPage;
    for (iovec& part : parts) {
      part = {&to_[order_[page] * kPage + inside], kPage - inside};
      inside = 0;
      page = (page + 1) % order_.size();
    }
    if (!moved(readv(receiver_, parts, kPagesACall), "readv", &received_)) return false;
    seen_.store(received_, std::memory_order_relaxed);
    return true;
  }

  uint64_t received() const { return seen_.load(std::memory_order_relaxed); }
  uint64_t lap() const { return from_.size(); }
  bool whole() const { return received_ == sent_; }  // when nobody moves any more
  bool right() const {
    for (size_t i = 0; i < order_.size(); ++i) {
      if (memcmp(&to_[order_[i] * kPage], &from_[i * kPage], kPage) != 0) return false;
    }
    return true;
  }
  // Of both ends, as they have it.
  std::string congestion() const {
    const std::string name = congestion_of(sender_);
    if (congestion_of(receiver_) != name) throw std::runtime_error("two congestion controls");
    return name;
  }

 private:
  void connect() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    check(bind(listener, name, length) == 0, "bind");
    check(getsockname(listener, name, &length) == 0, "getsockname");
    set_congestion(listener);
    check(listen(listener, 1) == 0, "listen");
    sender_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_congestion(sender_);
    check(::connect(sender_, name, length) == 0, "connect");
    receiver_ = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    check(receiver_ >= 0, "accept");
    close(listener);
    const int on = 1;
    setsockopt(sender_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  static bool moved(ssize_t bytes, const char* call, uint64_t* count) {
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    check(bytes > 0, call);
    *count += static_cast<uint64_t>(bytes);
    return true;
  }

  std::vector<uint8_t> from_, to_;
  std::vector<size_t> order_;
  int sender_ = -1, receiver_ = -1;
  uint64_t sent_ = 0;
  alignas(128) uint64_t received_ = 0;
  std::atomic<uint64_t> seen_{0};  // the same, for whoever takes samples
};

struct Measured {
  std::vector<double> gbps;
  bool right;
};

// `both`: as many streams back, and a thread for one each way; else a thread for each end.
Measured measure(size_t streams, bool both, int samples, size_t bytes_a_side) {
  const size_t pages = std::max<size_t>(bytes_a_side / streams / kPage, kPagesACall);
  std::deque<Stream> all;
  for (size_t i = 0; i < (both ? 2 : 1) * streams; ++i) all.emplace_back(pages, i + 1);
  std::atomic<bool> stop{false}, no_more{false};
  const auto work = [&](Stream* out, Stream* in) {
    try {
      // What was sent is received, so that all can be checked.
      while (!no_more) {
        const bool sent = out != nullptr && !stop && out->send_some();
        const bool received = in != nullptr && in->receive_some();
        if (!sent && !received) sched_yield();
      }
    } catch (const std::exception& error) {
      fail(error);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    if (both) {
      threads.emplace_back(work, &all[i], &all[(i + streams) % all.size()]);
    } else {
      threads.emplace_back(work, &all[i], nullptr);
      threads.emplace_back(work, nullptr, &all[i]);
    }
  }
  const auto received = [&] {
    uint64_t sum = 0;
    for (const Stream& stream : all) sum += stream.received();
    return sum;
  };
  using Clock = std::chrono::steady_clock;
  const auto a_lap_is_over = [&] {
    return std::all_of(all.begin(), all.end(),
                       [](const Stream& stream) { return stream.received() >= stream.lap(); });
  };
  while (!a_lap_is_over()) std::this_thread::sleep_for(kLook);
  Measured measured{};
  for (int sample = 0; sample < samples; ++sample) {
    const uint64_t before = received();
    const auto began = Clock::now();
    std::this_thread::sleep_for(kSample);
    const uint64_t bytes = received() - before;
    measured.gbps.push_back(static_cast<double>(bytes) / 1e9 /
                            std::chrono::duration<double>(Clock::now() - began).count());
  }
  stop = true;
  for (uint64_t before = ~uint64_t{0}; before != received();) {
    before = received();
    std::this_thread::sleep_for(kSample);
  }
  no_more = true;
  for (std::thread& thread : threads) thread.join();
  measured.right = std::all_of(all.begin(), all.end(), [](const Stream& stream) {
    return stream.whole() && stream.right();
  });
  return measured;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace

int main(int count, char** arguments) try {
  const int streams = count > 1 ? atoi(arguments[1]) : 0;
  const int samples = count > 2 ? atoi(arguments[2]) : 8;
  const int mib = count > 3 ? atoi(arguments[3]) : 64;
  if (streams < 1 || samples < 1 || mib < 1) {
    fprintf(stderr, "usage: bench_streams STREAMS [SAMPLES [MIB_A_SIDE]], each at least 1\n");
    return 2;
  }
  const size_t bytes = static_cast<size_t>(mib) << 20;
  printf("{\"streams\": %d, \"bytes_a_side\": %zu, \"congestion\": \"%s\", \"ways\": [\n", streams,
         bytes, Stream(1, 1).congestion().c_str());
  fflush(stdout);
  bool right = true;
  for (const bool both : {false, true}) {
    const Measured measured = measure(static_cast<size_t>(streams), both, samples, bytes);
    right = right && measured.right;
    printf("  {\"way\": \"%s\", \"threads\": %d, \"right\": %s, \"GBps_median\": %.2f, \"GBps\": [",
           both ? "both" : "one", 2 * streams, measured.right ? "true" : "false",
           median(measured.gbps));
    for (int i = 0; i < samples; ++i) printf("%s%.3f", i > 0 ? ", " : "", measured.gbps[i]);
    printf("]}%s\n", both ? "" : ",");
  }
  printf("]}\n");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  fail(error);
}
