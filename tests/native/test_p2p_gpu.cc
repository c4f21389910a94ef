// Two sessions with memory of GPUs over softtcpx as a plugin that puts data in place, on the fake
// driver or, with TCPX_MPI_REAL_GPU=, on a real one: every byte, of what is received and beside it.
#include <sched.h>

#include <cstdlib>
#include <vector>

#include "fake_gpu.h"
#include "tcpx_p2p/session.h"

using namespace tcpx_p2p;

namespace {

constexpr size_t kBytes = 2 << 20;
// Odd places and sizes, an empty message, one of more than a chunk.
const std::vector<std::pair<uint64_t, uint64_t>> kPlaces = {
    {0, 1}, {1, 4097}, {5000, 0}, {5001, 1460}, {65537, 700001}, {1 << 20, 1 << 20}};

// The plugin reads these once. What is received is hidden until it is flushed.
void set_up(const char* why_flushed, const char* value) {
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  setenv("SOFTTCPX_LIKE", "direct", 1);
  setenv("SOFTTCPX_TRAP_HIDDEN", "1", 1);
  if (why_flushed != nullptr) setenv(why_flushed, value, 1);
  test_gpu(0);
}

Options options_of(int gpu, Progress progress) {
  Options options;
  options.plugin = SOFTTCPX_PLUGIN;
  options.chunk_bytes = 64 << 10;
  options.gpu = gpu;
  options.progress = progress;
  return options;
}

// Registered memory of the host, or of a GPU.
class Memory {
 public:
  Memory(Session& owner, MemoryKind kind, int gpu, uint8_t seed)
      : host_(kBytes), gpu_(tcpx::use_gpu(gpu), kBytes), on_gpu_(kind == MemoryKind::kCuda) {
    std::vector<uint8_t> values(kBytes);
    for (size_t i = 0; i < kBytes && seed != 0; ++i) {
      values[i] = static_cast<uint8_t>(seed + i * 31 + (i >> 8));
    }
    put(values);
    id = owner.register_memory(on_gpu_ ? reinterpret_cast<uint8_t*>(gpu_.address()) : host_.data(),
                               kBytes, kind);
  }
  void put(const std::vector<uint8_t>& values) {
    host_ = values;
    if (on_gpu_) tcpx::copy_now(gpu_.address(), address_of(values), kBytes);
  }
  std::vector<uint8_t> get() const {
    if (!on_gpu_) return host_;
    std::vector<uint8_t> values(kBytes);
    tcpx::copy_now(address_of(values), gpu_.address(), kBytes);
    return values;
  }
  uint64_t id = 0;

 private:
  static tcpx::CudaAddress address_of(const std::vector<uint8_t>& values) {
    return reinterpret_cast<tcpx::CudaAddress>(values.data());
  }

  std::vector<uint8_t> host_;
  tcpx::GpuMemory gpu_;
  const bool on_gpu_;
};

// All places of one memory to the same places of the other.
void move(Session& from, const Memory& source, Session& to, const Memory& target) {
  Transfer sends = from.create_transfer("peer"), receives = to.create_transfer("peer");
  for (const auto& [at, bytes] : kPlaces) {
    receives.post_recv(target.id, at, bytes);
    sends.post_send(source.id, at, bytes);
  }
  for (bool complete = false; !complete; sched_yield()) {
    complete = receives.is_complete();
    complete &= sends.is_complete();  // who moves its bytes is who asks
  }
}

std::vector<uint8_t> expected_of(const std::vector<uint8_t>& sent) {
  std::vector<uint8_t> expected(kBytes);
  for (const auto& [at, bytes] : kPlaces) {
    std::copy_n(sent.begin() + at, bytes, expected.begin() + at);
  }
  return expected;
}

// Between two GPUs, and between one and the host, each way.
void move_everything(int last, bool right) {
  for (const Progress progress : {Progress::kCaller, Progress::kThread}) {
    Session a(0, 2, options_of(0, progress)), b(0, 2, options_of(last, progress));
    a.load_remote_conn_info("peer", b.listen("peer"));
    b.load_remote_conn_info("peer", a.listen("peer"));
    a.establish("peer");
    b.establish("peer");
    for (const auto& [here, there] : {std::pair{MemoryKind::kCuda, MemoryKind::kCuda},
                                      std::pair{MemoryKind::kHost, MemoryKind::kCuda},
                                      std::pair{MemoryKind::kCuda, MemoryKind::kHost}}) {
      const Memory out(a, here, 0, 3), in(b, there, last, 0), answer(b, there, last, 5),
          back(a, here, 0, 0);
      move(a, out, b, in);
      CHECK((in.get() == expected_of(out.get())) == (right || there == MemoryKind::kHost));
      move(b, answer, a, back);
      CHECK((back.get() == expected_of(answer.get())) == (right || here == MemoryKind::kHost));
      for (const Memory* of_a : {&out, &back}) a.deregister_memory(of_a->id);
      for (const Memory* of_b : {&in, &answer}) b.deregister_memory(of_b->id);
    }
  }
}

int last_gpu() { return static_cast<int>(tcpx::gpus().size()) - 1; }

}  // namespace

TEST(what_is_put_into_a_gpus_memory_is_flushed_where_that_is_forced) {
  set_up("NCCL_NET_FORCE_FLUSH", "1");
  move_everything(last_gpu(), true);
}

TEST(what_is_put_into_the_memory_of_a_gpu_older_than_hopper_is_flushed) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: a GPU of another generation";
    return;
  }
  set_up("FAKECUDA_CAPABILITY", "80");
  move_everything(last_gpu(), true);
}

// Else the two before it would prove nothing.
TEST(what_is_hidden_and_not_flushed_is_wrong) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: a GPU that needs no flush";
    return;
  }
  set_up(nullptr, nullptr);
  move_everything(last_gpu(), false);
}

CHECK_MAIN()
