// Counting the bytes of sockets that somebody else in this process opened.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "check.h"
#include "engine/tcp_info.h"

using namespace tcpx;

namespace {

struct Pair {
  Pair() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    CHECK_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    CHECK_EQ(listen(listener, 1), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(near, reinterpret_cast<sockaddr*>(&address), length), 0);
    far = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Pair() {
    close(near);
    close(far);
  }
  int near = -1;
  int far = -1;
};

}  // namespace

TEST(bytes_of_sockets_opened_since_are_counted_and_of_others_not) {
  Pair old;
  const auto before = tcp_socket_inodes();
  CHECK_EQ(before.size(), 2u);
  Pair young;
  const int datagram = socket(AF_INET, SOCK_DGRAM, 0);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  listen(listener, 1);
  const TcpSockets sockets = TcpSockets::opened_since(before);
  CHECK_EQ(sockets.count(), 2);
  std::vector<char> bytes(1000);
  CHECK_EQ(write(old.near, bytes.data(), 500), 500);
  CHECK_EQ(write(young.near, bytes.data(), 1000), 1000);
  CHECK_EQ(recv(young.far, bytes.data(), 1000, MSG_WAITALL), 1000);
  const SocketTotals totals = sockets.totals();
  CHECK_EQ(totals.sent, 1000u);
  CHECK_EQ(totals.received, 1000u);
  CHECK_EQ(totals.sockets, 2);
  CHECK(!sockets.congestion_control().empty());
  CHECK_EQ(sockets.interfaces(), std::string("lo"));
  CHECK_EQ(TcpSockets().interfaces(), std::string());
  close(datagram);
  close(listener);
}

CHECK_MAIN()
