// The fake driver bites where a real one would: what the tests of GPU code rely on.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "fake_gpu.h"

namespace {

using Pointer = unsigned long long;

struct Calls {
  int (*init)(unsigned) = fake_call<int(unsigned)>("cuInit");
  int (*count)(int*) = fake_call<int(int*)>("cuDeviceGetCount");
  int (*retain)(void**, int) = fake_call<int(void**, int)>("cuDevicePrimaryCtxRetain");
  int (*use)(void*) = fake_call<int(void*)>("cuCtxSetCurrent");
  int (*alloc)(Pointer*, size_t) = fake_call<int(Pointer*, size_t)>("cuMemAlloc_v2");
  int (*free)(Pointer) = fake_call<int(Pointer)>("cuMemFree_v2");
  int (*host)(void**, size_t,
              unsigned) = fake_call<int(void**, size_t, unsigned)>("cuMemHostAlloc");
  int (*up_later)(Pointer, const void*, size_t, void*) =
      fake_call<int(Pointer, const void*, size_t, void*)>("cuMemcpyHtoDAsync_v2");
  int (*across)(Pointer, Pointer,
                size_t) = fake_call<int(Pointer, Pointer, size_t)>("cuMemcpyDtoD_v2");
  int (*set)(Pointer, unsigned char,
             size_t) = fake_call<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
  int (*up)(Pointer, const void*,
            size_t) = fake_call<int(Pointer, const void*, size_t)>("cuMemcpyHtoD_v2");
  int (*down)(void*, Pointer, size_t) = fake_call<int(void*, Pointer, size_t)>("cuMemcpyDtoH_v2");
  int (*down_later)(void*, Pointer, size_t,
                    void*) = fake_call<int(void*, Pointer, size_t, void*)>("cuMemcpyDtoHAsync_v2");
  int (*stream)(void**, unsigned) = fake_call<int(void**, unsigned)>("cuStreamCreate");
  int (*query)(void*) = fake_call<int(void*)>("cuStreamQuery");
  int (*wait)(void*) = fake_call<int(void*)>("cuStreamSynchronize");
};

// How a child that runs `body` ends: its signal, or 0.
template <typename Body>
int signal_of(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST(the_host_crashes_where_it_touches_device_memory) {
  const Calls cu;
  void* context = nullptr;
  Pointer memory = 0;
  CHECK_EQ(cu.init(0), 0);
  CHECK_EQ(cu.retain(&context, 0), 0);
  CHECK_EQ(cu.use(context), 0);
  CHECK_EQ(cu.alloc(&memory, 8192), 0);
  std::vector<uint8_t> data(8192, 7), back(8192);
  CHECK_EQ(cu.up(memory, data.data(), data.size()), 0);
  CHECK_EQ(cu.down(back.data(), memory, back.size()), 0);
  CHECK(back == data);
  auto* pointer = reinterpret_cast<volatile uint8_t*>(memory);
  CHECK_EQ(signal_of([=] { (void)*pointer; }), SIGSEGV);
  CHECK_EQ(signal_of([=] { *pointer = 1; }), SIGSEGV);
  CHECK_EQ(cu.down(back.data(), memory + 1, 8192), 1);  // beyond the allocation
  CHECK_EQ(cu.free(memory), 0);
  CHECK_EQ(cu.down(back.data(), memory, 1), 1);
}

TEST(a_call_before_init_or_without_a_context_is_refused) {
  const Calls cu;
  Pointer memory = 0;
  int count = 0;
  CHECK_EQ(cu.count(&count), 3);
  CHECK_EQ(cu.init(0), 0);
  CHECK_EQ(cu.alloc(&memory, 1), 201);
}

TEST(a_copy_is_not_there_before_its_stream_got_to_it) {
  const Calls cu;
  void* context = nullptr;
  void* stream = nullptr;
  void* host = nullptr;
  Pointer memory = 0;
  cu.init(0);
  cu.retain(&context, 0);
  cu.use(context);
  CHECK_EQ(cu.stream(&stream, 1), 0);
  CHECK_EQ(cu.alloc(&memory, 64), 0);
  CHECK_EQ(cu.host(&host, 64, 0), 0);
  const std::vector<uint8_t> data(64, 9);
  CHECK_EQ(cu.up(memory, data.data(), 64), 0);
  CHECK_EQ(cu.wait(nullptr), 0);
  {
    const Held held;
    CHECK_EQ(cu.down_later(host, memory, 64, stream), 0);
    CHECK_EQ(cu.query(stream), 600);
    CHECK_EQ(static_cast<uint8_t*>(host)[0], uint8_t{0});
  }
  CHECK_EQ(cu.wait(stream), 0);
  CHECK(memcmp(host, data.data(), 64) == 0);
}

// By the driver's own description: only what the host reads, and what it wrote page-locked, is
// there when a call without a stream returns.
TEST(what_the_default_stream_was_given_is_there_when_it_was_waited_for) {
  const Calls cu;
  void* context = nullptr;
  void* stream = nullptr;
  void* host = nullptr;
  constexpr int kUncleared = 0xA5;
  Pointer memory = 0, other = 0;
  cu.init(0);
  cu.retain(&context, 0);
  cu.use(context);
  CHECK_EQ(cu.stream(&stream, 1), 0);
  CHECK_EQ(cu.alloc(&memory, 64), 0);
  CHECK_EQ(cu.alloc(&other, 64), 0);
  CHECK_EQ(cu.host(&host, 64, 0), 0);
  // As a stream sees it that does not block.
  const auto seen = [&] {
    CHECK_EQ(cu.down_later(host, memory, 64, stream), 0);
    CHECK_EQ(cu.wait(stream), 0);
    return static_cast<int>(static_cast<uint8_t*>(host)[63]);
  };
  std::vector<uint8_t> bytes(64, 9);
  CHECK_EQ(cu.up(memory, bytes.data(), 64), 0);
  bytes.assign(64, 1);  // the driver has its own by now
  CHECK_EQ(seen(), kUncleared);
  CHECK_EQ(cu.wait(nullptr), 0);
  CHECK_EQ(seen(), 9);
  CHECK_EQ(cu.set(other, 8, 64), 0);
  CHECK_EQ(cu.across(memory, other, 64), 0);
  CHECK_EQ(seen(), 9);
  CHECK_EQ(cu.down(bytes.data(), other, 64), 0);  // waits for what came before
  CHECK_EQ(bytes[63], 8);
  CHECK_EQ(seen(), 8);
  static_cast<uint8_t*>(host)[63] = 7;
  CHECK_EQ(cu.up(memory, host, 64), 0);
  CHECK_EQ(seen(), 7);
  bytes.assign(64, 6);
  CHECK_EQ(cu.up_later(memory, bytes.data(), 64, stream), 0);
  CHECK_EQ(seen(), 6);
}

TEST(a_stream_that_blocks_waits_for_the_default_stream) {
  const Calls cu;
  void* context = nullptr;
  void* stream = nullptr;
  void* host = nullptr;
  Pointer memory = 0;
  cu.init(0);
  cu.retain(&context, 0);
  cu.use(context);
  CHECK_EQ(cu.stream(&stream, 0), 0);
  CHECK_EQ(cu.alloc(&memory, 64), 0);
  CHECK_EQ(cu.host(&host, 64, 0), 0);
  CHECK_EQ(cu.set(memory, 5, 64), 0);
  CHECK_EQ(cu.down_later(host, memory, 64, stream), 0);
  CHECK_EQ(cu.wait(stream), 0);
  CHECK_EQ(static_cast<uint8_t*>(host)[63], uint8_t{5});
}

TEST(a_stream_of_another_device_is_refused) {
  const Calls cu;
  void* contexts[2] = {};
  void* stream = nullptr;
  cu.init(0);
  cu.retain(&contexts[0], 0);
  cu.retain(&contexts[1], 1);
  cu.use(contexts[0]);
  CHECK_EQ(cu.stream(&stream, 1), 0);
  cu.use(contexts[1]);
  CHECK_EQ(cu.query(stream), 400);
}

TEST(the_third_call_fails_where_it_is_told_to) {
  setenv("FAKECUDA_FAIL", "cuMemAlloc:3:2", 1);
  const Calls cu;
  void* context = nullptr;
  Pointer memory = 0;
  cu.init(0);
  cu.retain(&context, 0);
  cu.use(context);
  for (const int expected : {0, 0, 2, 0}) CHECK_EQ(cu.alloc(&memory, 64), expected);
  CHECK_EQ(fake_call<uint64_t(const char*)>("fakecuda_calls")("cuMemAlloc"), uint64_t{4});
}

TEST(devices_are_as_many_as_are_asked_for_and_visible) {
  setenv("FAKECUDA_DEVICES", "3", 1);
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  const Calls cu;
  int count = 0;
  cu.init(0);
  CHECK_EQ(cu.count(&count), 0);
  CHECK_EQ(count, 2);
  char id[16] = {};
  const auto pci = fake_call<int(char*, int, int)>("cuDeviceGetPCIBusId");
  CHECK_EQ(pci(id, sizeof(id), 0), 0);
  CHECK_EQ(std::string(id), std::string("0000:12:00.0"));
}

CHECK_MAIN()
