// Bringing up the raw peer's connections: who is let in, how sockets are set, what is refused.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <set>

#include "engine/signals.h"
#include "raw_rig.h"

using namespace tcpx;

namespace {

// The form of RawLinks::listen(), which a stranger on the network would have to guess.
struct Address {
  sockaddr_storage socket;
  socklen_t length;
  std::array<uint8_t, 16> token;
};
struct Hello {
  std::array<uint8_t, 16> token;
  int32_t rank, lane, stream, zero;
};

Address address_of(const std::string& text) {
  Address address;
  CHECK_EQ(text.size(), sizeof(address));
  std::memcpy(&address, text.data(), sizeof(address));
  return address;
}

// Connects as anybody could and says `size` bytes.
int visit(const Address& address, const void* said, size_t size) {
  const int fd = socket(address.socket.ss_family, SOCK_STREAM, 0);
  const timeval patience{20, 0};  // a guest that is let in would never hear a word
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  CHECK_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address.socket), address.length), 0);
  CHECK_EQ(send(fd, said, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
  return fd;
}

// The end, or a reset where what it had said was not read.
bool was_shown_the_door(int fd) {
  char byte = 0;
  const ssize_t n = recv(fd, &byte, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

std::string congestion_of(int fd) {
  char name[16] = {};
  socklen_t length = sizeof(name) - 1;
  CHECK_EQ(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
  return name;
}

int int_of(int fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  CHECK_EQ(getsockopt(fd, level, option, &value, &length), 0);
  return value;
}

uint64_t endpoint_of(int fd, bool own) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  CHECK_EQ(own ? getsockname(fd, any, &length) : getpeername(fd, any, &length), 0);
  return uint64_t{address.sin_addr.s_addr} << 16 | address.sin_port;
}

// An interface with an IPv4 address that is not lo, where this machine has one; else lo.
std::string another_interface(in_addr_t* address) {
  ifaddrs* list = nullptr;
  CHECK_EQ(getifaddrs(&list), 0);
  std::string name = "lo";
  *address = htonl(INADDR_LOOPBACK);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (std::string(entry->ifa_name) == "lo") continue;
    name = entry->ifa_name;
    *address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr;
    break;
  }
  freeifaddrs(list);
  return name;
}

}  // namespace

TEST(each_direction_has_as_many_sockets_as_there_are_streams) {
  for (const int streams : {1, 2, 4}) {
    RawPair pair(on_lo(streams));
    std::set<int> seen;
    for (int stream = 0; stream < streams; ++stream) {
      for (const int rank : {0, 1}) {
        const RawLinks& here = *pair.ranks[rank].links;
        const RawLinks& there = *pair.ranks[1 - rank].links;
        const int out = here.send_socket(1 - rank, 0, stream);
        const int in = there.receive_socket(rank, 0, stream);
        seen.insert(out);
        seen.insert(in);
        // The other end of this very connection.
        CHECK_EQ(endpoint_of(out, true), endpoint_of(in, false));
        CHECK_EQ(endpoint_of(out, false), endpoint_of(in, true));
      }
    }
    CHECK_EQ(seen.size(), 4u * streams);
    CHECK_EQ(pair.ranks[0].links->sockets().size(), 2u * streams);
    CHECK_THROWS(pair.ranks[0].links->send_socket(1, 0, streams), std::invalid_argument, "rank 1");
    CHECK_THROWS(pair.ranks[0].links->receive_socket(1, 1, 0), std::invalid_argument, "rank 1");
  }
}

TEST(a_two_way_stream_is_one_socket_for_both_directions) {
  for (const int streams : {1, 4}) {
    RawPair pair(on_lo(streams, true));
    for (const int rank : {0, 1}) {
      const RawLinks& links = *pair.ranks[rank].links;
      CHECK_EQ(links.sockets().size(), static_cast<size_t>(streams));
      for (int stream = 0; stream < streams; ++stream) {
        CHECK_EQ(links.send_socket(1 - rank, 0, stream), links.receive_socket(1 - rank, 0, stream));
      }
    }
  }
}

TEST(both_ends_have_the_options_that_were_asked_for) {
  RawSettings settings = on_lo(2);
  settings.congestion = "reno";  // every kernel has it
  settings.send_buffer_bytes = 65'536;
  RawPair pair(settings);
  for (const RawRank& rank : pair.ranks) {
    for (const int fd : rank.links->sockets()) {
      CHECK_EQ(congestion_of(fd), std::string("reno"));
      CHECK_EQ(int_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
      CHECK_EQ(int_of(fd, SOL_SOCKET, SO_SNDBUF), 2 * 65'536);  // the kernel's own share with it
    }
  }
}

TEST(a_stream_goes_out_from_the_address_of_the_own_interface) {
  RawSettings here = on_lo();
  in_addr_t address = 0;
  here.interface = another_interface(&address);
  RawLinks near(here), far(on_lo());
  const std::vector<std::string> addresses = {near.listen(), far.listen()};
  run_two([&] { near.establish(0, addresses, {{1, 0}}, {}, 5.0); },
          [&] { far.establish(1, addresses, {}, {{0, 0}}, 5.0); });
  CHECK_EQ(endpoint_of(near.send_socket(1, 0, 0), true) >> 16, uint64_t{address});
}

TEST(strangers_at_the_listener_are_ignored_and_the_links_come_up) {
  RawLinks near(on_lo(2)), far(on_lo(2));
  const std::vector<std::string> addresses = {near.listen(), far.listen()};
  const Address address = address_of(addresses[1]);
  Hello wrong_token{address.token, 0, 0, 0, 0};
  wrong_token.token[15] ^= 1;
  const Hello wrong_rank{address.token, 7, 0, 0, 0}, wrong_lane{address.token, 0, 3, 0, 0},
      wrong_stream{address.token, 0, 0, 2, 0}, negative{address.token, -1, 0, 0, 0};
  std::vector<int> strangers;
  for (const Hello& hello : {wrong_token, wrong_rank, wrong_lane, wrong_stream, negative}) {
    strangers.push_back(visit(address, &hello, sizeof(hello)));
  }
  strangers.push_back(visit(address, "GET / HTTP/1.1\r\nHost: not here\r\n\r\n", 35));
  strangers.push_back(visit(address, &wrong_rank, 17));  // half a hello, and never more
  strangers.push_back(visit(address, nullptr, 0));       // a port scanner that stays
  close(visit(address, &wrong_rank, 20));                // and one that leaves
  run_two([&] { near.establish(0, addresses, {{1, 0}}, {}, 5.0); },
          [&] { far.establish(1, addresses, {}, {{0, 0}}, 5.0); });
  CHECK_EQ(far.sockets().size(), 2u);
  for (const int stream : {0, 1}) {
    CHECK_EQ(endpoint_of(far.receive_socket(0, 0, stream), false),
             endpoint_of(near.send_socket(1, 0, stream), true));
    const char sent = static_cast<char>('a' + stream);
    char got = 0;
    CHECK_EQ(send(near.send_socket(1, 0, stream), &sent, 1, 0), 1);
    CHECK_EQ(recv(far.receive_socket(0, 0, stream), &got, 1, 0), 1);
    CHECK_EQ(got, sent);
  }
  if (check::failures() > 0) return;  // a stranger that was let in would never hear a word
  for (const int fd : strangers) {
    CHECK(was_shown_the_door(fd));
    close(fd);
  }
}

TEST(one_who_comes_in_the_place_of_another_that_is_there_is_turned_away) {
  RawLinks near(on_lo(2)), far(on_lo(2));
  const std::vector<std::string> addresses = {near.listen(), far.listen()};
  const Address address = address_of(addresses[1]);
  const Hello first{address.token, 0, 0, 0, 0};
  const int there = visit(address, &first, sizeof(first));
  const int late = visit(address, &first, sizeof(first));
  const Hello second{address.token, 0, 0, 1, 0};
  const int other = visit(address, &second, sizeof(second));
  far.establish(1, addresses, {}, {{0, 0}}, 5.0);
  CHECK_EQ(endpoint_of(far.receive_socket(0, 0, 0), false), endpoint_of(there, true));
  CHECK(was_shown_the_door(late));
  for (const int fd : {there, late, other}) close(fd);
}

TEST(what_cannot_be_is_refused_in_words) {
  RawSettings nowhere = on_lo();
  nowhere.interface = "nosuch0";
  CHECK_THROWS(RawLinks(nowhere).listen(), std::runtime_error,
               "network interface nosuch0 has no IP address to listen on");
  RawSettings unknown = on_lo();
  unknown.congestion = "nosuch";
  CHECK_THROWS(RawLinks(unknown).listen(), std::runtime_error,
               "the kernel refuses congestion control nosuch");
}

TEST(connections_that_do_not_come_up_are_counted) {
  RawLinks links(on_lo(2));
  const std::vector<std::string> addresses = {links.listen(), ""};
  CHECK_THROWS(links.establish(0, addresses, {}, {{1, 0}}, 0.05), std::runtime_error,
               "2 of 2 connections did not come up");
  RawLinks without(on_lo());
  without.listen();
  CHECK_THROWS(without.establish(0, addresses, {{1, 0}}, {}, 5.0), std::runtime_error,
               "rank 1 has no address");
}

TEST(a_refusal_names_the_rank) {
  RawLinks links(on_lo());
  std::vector<std::string> addresses = {links.listen(), ""};
  {
    RawLinks gone(on_lo());
    addresses[1] = gone.listen();
  }
  CHECK_THROWS(links.establish(0, addresses, {{1, 0}}, {}, 5.0), std::runtime_error,
               "connect to rank 1: Connection refused");
}

TEST(a_signal_ends_the_wait) {
  install_signal_handlers();
  RawLinks links(on_lo());
  const std::vector<std::string> addresses = {links.listen(), ""};
  raise(SIGTERM);
  CHECK_THROWS(links.establish(0, addresses, {}, {{1, 0}}, 30.0), Interrupt, "interrupted");
}

TEST(nothing_stays_open) {
  const int next = dup(0);
  close(next);
  { RawPair pair(on_lo(4)); }
  CHECK_THROWS(RawLinks(on_lo(0)).send_socket(1, 0, 0), std::invalid_argument, "no stream");
  const int again = dup(0);
  CHECK_EQ(again, next);
  close(again);
}

TEST(a_connection_for_which_there_is_no_file_keeps_no_cpu_busy_and_is_named) {
  RawLinks links(on_lo());
  const std::string text = links.listen();
  visit(address_of(text), "x", 1);
  rlimit before, none;
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::clock_t begun = std::clock();
  CHECK_THROWS(links.establish(1, {text, text}, {}, {{0, 0}}, 1.0), std::runtime_error,
               "connections did not come up: accept: Too many open files");
  CHECK_LT(std::clock() - begun, CLOCKS_PER_SEC / 2);  // of a second
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

CHECK_MAIN()
