// A caller and a worker on one connection; who touches what without handing it over,
// ThreadSanitizer tells (make test SUITE=tsan).
#include "softtcpx_receiver.h"

using namespace softtcpx;

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

CHECK_MAIN()
