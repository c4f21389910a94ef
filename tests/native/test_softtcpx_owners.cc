// A caller and a worker on one connection; who touches what without handing it over,
// ThreadSanitizer tells (make test SUITE=tsan).
#include <netinet/in.h>

#include <algorithm>
#include <random>

#include "softtcpx/transfer/send_comm.h"
#include "softtcpx_receiver.h"

using namespace softtcpx;

namespace {

void tcp_pair(Fd* one, Fd* other) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const there = reinterpret_cast<sockaddr*>(&address);
  const Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
  CHECK_EQ(::bind(listener.get(), there, length), 0);
  CHECK_EQ(::listen(listener.get(), 1), 0);
  CHECK_EQ(::getsockname(listener.get(), there, &length), 0);
  *one = Fd(::socket(AF_INET, SOCK_STREAM, 0));
  CHECK_EQ(::connect(one->get(), there, length), 0);
  *other = Fd(::accept(listener.get(), nullptr, nullptr));
}

}  // namespace

TEST(the_first_receive_into_gpu_memory_may_be_posted_while_host_memory_is_received) {
  constexpr int kBefore = 8;  // whose slots are taken back with the next message
  Settings settings = sleepy(/*direct_sockets=*/4);
  settings.chunk_bytes = 4096;
  Device device(0, Interface{}, settings);
  Receiver receiver(device, 1, 1);
  for (int i = 0; i < kBefore; ++i) {
    CHECK_EQ(receiver.post(), int{kNetSuccess});
    receiver.send(0);
    CHECK(until([&] { return receiver.test(); }));
    receiver.consume();
  }
  CHECK_EQ(receiver.post(), int{kNetSuccess});
  receiver.send(0);
  CHECK_EQ(receiver.post(Memory::kEmulated), int{kNetSuccess});
  receiver.send(0);
  CHECK(until([&] { return receiver.test() && receiver.done() == kBefore + 2; }));
  receiver.consume();
  receiver.consume();
}

// Of two connections with one worker each way, messages of all sizes, a few at a time.
TEST(a_caller_and_a_worker_take_turns) {
  constexpr int kPairs = 2, kMessages = 200, kWindow = 4;
  constexpr uint32_t kMost = 400 * 1024;
  const Presence presence;
  Settings settings = shared_with_caller(/*direct_sockets=*/0);
  settings.chunk_bytes = 512 * 1024;
  Device sending(0, Interface{}, settings, &presence),
      receiving(1, Interface{}, settings, &presence);
  struct Side {
    std::unique_ptr<Comm> comm;
    std::vector<std::vector<uint8_t>> memory;
    std::array<void*, kWindow> requests{};
    int posted = 0, done = 0;
  };
  std::array<Side, kPairs> senders, receivers;
  for (int i = 0; i < kPairs; ++i) {
    Sockets from, to;
    tcp_pair(&from.control, &to.control);
    tcp_pair(&from.data.emplace_back(), &to.data.emplace_back());
    from.threads = to.threads = 1;
    senders[i].comm = std::make_unique<SendComm>(sending, std::move(from));
    auto receiver = std::make_unique<RecvComm>(receiving, std::move(to));
    receiver->open_bounce();
    receivers[i].comm = std::move(receiver);
    for (Side* side : {&senders[i], &receivers[i]}) {
      CHECK(side->comm->start());
      side->memory.assign(kWindow, std::vector<uint8_t>(kMost));
    }
  }
  std::mt19937 draw(7);
  std::array<std::vector<uint32_t>, kPairs> sizes;
  for (auto& each : sizes) {
    for (int i = 0; i < kMessages; ++i) {
      each.push_back(std::array<uint32_t, 4>{8, 65536, 200 * 1024, kMost}[draw() % 4]);
    }
  }
  const auto value = [](int pair, int message) {
    return static_cast<uint8_t>(pair * 101 + message);
  };
  const auto advance = [&](int pair, bool sends) {
    Side& side = sends ? senders[pair] : receivers[pair];
    if (side.posted < kMessages && side.posted - side.done < kWindow) {
      std::vector<uint8_t>& memory = side.memory[side.posted % kWindow];
      const uint32_t size = sizes[pair][side.posted];
      std::fill(memory.begin(), memory.end(), sends ? value(pair, side.posted) : 0);
      const Region region(sends ? &sending : &receiving, memory.data(), memory.size(),
                          Memory::kHost, {});
      void** request = &side.requests[side.posted % kWindow];
      const int code =
          sends
              ? static_cast<SendComm&>(*side.comm).send(memory.data(), size, &region, request)
              : static_cast<RecvComm&>(*side.comm).receive(memory.data(), kMost, &region, request);
      CHECK_EQ(code, int{kNetSuccess});
      if (*request != nullptr) ++side.posted;
    }
    if (side.done == side.posted) return side.done == kMessages;
    auto& oldest = *static_cast<Request*>(side.requests[side.done % kWindow]);
    int done = 0;
    CHECK_EQ(side.comm->test(oldest, &done, nullptr), int{kNetSuccess});
    if (done == 0) return false;
    if (!sends) {
      const std::vector<uint8_t>& memory = side.memory[side.done % kWindow];
      const auto end = memory.begin() + sizes[pair][side.done];
      CHECK_EQ(std::count(memory.begin(), end, value(pair, side.done)), end - memory.begin());
      CHECK_EQ(static_cast<RecvComm&>(*side.comm).consumed(oldest), int{kNetSuccess});
    }
    return ++side.done == kMessages;
  };
  CHECK(until([&] {
    bool all = true;
    for (int pair = 0; pair < kPairs; ++pair) {
      for (const bool sends : {true, false}) all &= advance(pair, sends);
    }
    return all;
  }));
}

CHECK_MAIN()
