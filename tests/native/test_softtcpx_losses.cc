// How long a receiving connection of softtcpx waits for what a lost peer has sent, by a clock of
// ours.
#include <chrono>

#include "fake_gpu.h"
#include "softtcpx_receiver.h"

using namespace softtcpx;

using Clock = std::chrono::steady_clock;

static std::atomic<int64_t> g_seconds_ahead{0};

extern "C" {
Clock::time_point __real__ZNSt6chrono3_V212steady_clock3nowEv();
Clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  return __real__ZNSt6chrono3_V212steady_clock3nowEv() + std::chrono::seconds(g_seconds_ahead);
}
}

// Each look at the sockets may be the one that asks epoll, once in 64.
static void look_often(Receiver& receiver) {
  for (int i = 0; i < 200; ++i) CHECK(!receiver.test());
}

TEST(what_is_on_its_way_has_its_second_after_the_pages_were_all_in_use) {
  test_gpu();
  Settings settings = sleepy(/*direct_sockets=*/4);
  settings.chunk_bytes = 4096;
  settings.bounce_pages = 3;  // a receive of one page may need two
  Device device(0, Interface{}, settings);
  CHECK(device.poller.open());
  Receiver receiver(device, /*data_sockets=*/2, /*threads=*/0);
  for (int i = 0; i < 3; ++i) CHECK_EQ(receiver.post(Memory::kGpu), int{kNetSuccess});
  receiver.send(0);
  CHECK(until([&] { return receiver.test(); }));
  receiver.close_control();
  look_often(receiver);
  receiver.send(0);  // which waits for pages
  look_often(receiver);
  g_seconds_ahead += 5;
  look_often(receiver);
  receiver.consume();
  CHECK(until([&] { return receiver.test(); }));
  receiver.send(1);
  receiver.consume();
  CHECK(until([&] { return receiver.test(); }));
  receiver.consume();
}

CHECK_MAIN()
