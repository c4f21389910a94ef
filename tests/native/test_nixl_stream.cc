// The control stream's connection.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "check.h"
#include "library/nixl/stream.h"

using namespace tcpx::nixl;
using namespace std::chrono_literals;

TEST(what_was_sent_is_kept_no_longer_than_as_much_is_not) {
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Socket reader(ends[1]);
  Stream stream(Socket(ends[0]), 1s);
  std::string why;
  size_t most = 0;
  uint8_t next = 0;
  char taken[64 << 10];
  for (int round = 0; round < 2000; ++round) {
    while (stream.backlog() < (256 << 10)) {  // something is always left
      stream.out() += std::string(1 << 10, static_cast<char>(round));
    }
    CHECK(stream.flush(&why));
    CHECK(stream.backlog() > 0);
    const ssize_t got = read(reader.fd(), taken, sizeof(taken));
    CHECK(got > 0);
    // In the order in which it was written.
    CHECK(static_cast<uint8_t>(taken[0]) >= next || next > 200);
    next = static_cast<uint8_t>(taken[0]);
    most = std::max(most, stream.out().size());
  }
  CHECK_LE(most, size_t{2} << 20);
}

TEST(the_kernel_bears_a_silent_peer_as_long_as_we_do_and_20_s_at_least) {
  for (const auto& [patience, expected] : {std::pair{1'000ms, 20'000u}, {70'000ms, 70'000u}}) {
    const Stream stream(Socket(socket(AF_INET, SOCK_STREAM, 0)), patience);
    unsigned found = 0;
    socklen_t length = sizeof(found);
    CHECK_EQ(getsockopt(stream.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &found, &length), 0);
    CHECK_EQ(found, expected);
  }
}

CHECK_MAIN()
