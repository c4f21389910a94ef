// Two agents with memory of GPUs, on the fake driver or, with TCPX_MPI_REAL_GPU=, on a real one.
#include <memory>

#include "fake_gpu.h"
#include "library/nixl/inline_bytes.h"
#include "nixl_agent.h"

using namespace stand_in;

namespace {

constexpr uint64_t kBytes = 3 << 20;

// Memory of a GPU, registered with an agent.
class GpuBytes {
 public:
  GpuBytes(Agent& owner, tcpx::Gpu& gpu, uint8_t seed)
      : owner_(owner), memory_(gpu, kBytes), stream_(gpu) {
    std::vector<uint8_t> values(kBytes);
    for (size_t i = 0; seed != 0 && i < kBytes; ++i) {
      values[i] = static_cast<uint8_t>(seed + i * 2654435761u / 65536);
    }
    put(values);
    const BlobDescriptor where{{memory_.address(), kBytes, 0}, ""};
    CHECK_EQ(owner.backend->register_memory(where, kVram, local), kSuccess);
  }
  ~GpuBytes() {
    if (local != nullptr) owner_.backend->deregister_memory(local);
  }
  void put(const std::vector<uint8_t>& values) {
    const auto from = reinterpret_cast<tcpx::CudaAddress>(values.data());
    tcpx::copy_now(memory_.address(), from, kBytes);
  }
  // As a stream finds them that waits for no other.
  std::vector<uint8_t> get() const {
    std::vector<uint8_t> values(kBytes);
    const auto to = reinterpret_cast<tcpx::CudaAddress>(values.data());
    CHECK_EQ(tcpx::cuda().copy_async(to, memory_.address(), kBytes, stream_.handle()), 0);
    stream_.wait();
    return values;
  }
  std::string blob() const {
    std::string text;
    CHECK_EQ(owner_.backend->public_data(local, text), kSuccess);
    return text;
  }
  uint8_t* data() const { return reinterpret_cast<uint8_t*>(memory_.address()); }

 private:
  Agent& owner_;
  tcpx::GpuMemory memory_;
  tcpx::GpuStream stream_;

 public:
  Metadata* local = nullptr;
};

Params with_compiler() {
  const char* real = getenv("TCPX_MPI_REAL_GPU");
  return {{"nvrtc", real != nullptr ? real : FAKECUDA_FOLDER}};
}

// One request, until it is over.
Status run(Agent& agent, Operation operation, const GpuBytes& here, const GpuBytes& there,
           Metadata* known, const std::vector<Block>& blocks) {
  MetaList local(kVram), remote(kVram);
  for (const Block& block : blocks) {
    local.entries().push_back(
        {{here.local ? reinterpret_cast<uintptr_t>(here.data()) + block.at : 0, block.bytes, 0},
         here.local});
    remote.entries().push_back(
        {{reinterpret_cast<uintptr_t>(there.data()) + block.at, block.bytes, 0}, known});
  }
  Request* request = nullptr;
  CHECK_EQ(agent.backend->prepare(operation, local, remote, "b", request, nullptr), kSuccess);
  PostOptions options;
  Status status = agent.backend->post(operation, local, remote, "b", request, &options);
  const int64_t deadline = tcpx::now_ns() + kDeadlineNs;
  while (status == kInProgress && tcpx::now_ns() < deadline) {
    sched_yield();
    status = agent.backend->check(request);
  }
  agent.backend->release(request);
  return status;
}

// A write of one large block and a read of many small ones, each a message of its own.
void write_and_read(bool right) {
  tcpx::Gpu& gpu = test_gpu(0);
  Agent a("a", true, with_compiler()), b("b", true, with_compiler());
  CHECK_EQ(a.load(b), kSuccess);
  GpuBytes from(a, gpu, 3), to(b, gpu, 0), back(a, gpu, 0), source(b, gpu, 7);
  Metadata *known = nullptr, *known_source = nullptr;
  CHECK_EQ(a.backend->load_remote_metadata({{0, 0, 0}, to.blob()}, kVram, "b", known), kSuccess);
  CHECK_EQ(a.backend->load_remote_metadata({{0, 0, 0}, source.blob()}, kVram, "b", known_source),
           kSuccess);
  CHECK_EQ(run(a, kWrite, from, to, known, {{0, kBytes}}), kSuccess);
  CHECK((to.get() == from.get()) == right);
  std::vector<uint8_t> expected(kBytes);
  std::vector<Block> blocks;
  for (uint64_t at = 0; at < 100 * 8192; at += 8192) blocks.push_back({at, 4096});
  blocks.push_back({100 * 8192 + 3, 4097});
  blocks.push_back({(1 << 20) + 1, 1});
  const std::vector<uint8_t> there = source.get();
  for (const Block& block : blocks) {
    memcpy(expected.data() + block.at, there.data() + block.at, block.bytes);
  }
  CHECK_EQ(run(a, kRead, back, source, known_source, blocks), kSuccess);
  CHECK((back.get() == expected) == right);
  for (Metadata* each : {known, known_source}) a.backend->unload_metadata(each);
}

// softtcpx as a plugin that puts data in place, hidden until it is flushed; read once a process.
void puts_in_place() {
  setenv("SOFTTCPX_LIKE", "direct", 1);
  setenv("SOFTTCPX_TRAP_HIDDEN", "1", 1);
}

}  // namespace

TEST(memory_of_a_gpu_is_written_and_read) { write_and_read(true); }

TEST(memory_of_a_gpu_is_written_and_read_where_the_plugin_puts_data_in_place) {
  puts_in_place();
  setenv("NCCL_NET_FORCE_FLUSH", "1", 1);
  write_and_read(true);
}

TEST(memory_of_a_gpu_older_than_hopper_is_flushed_before_it_is_done) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: a GPU of another generation";
    return;
  }
  puts_in_place();
  setenv("FAKECUDA_CAPABILITY", "80", 1);
  write_and_read(true);
}

// Else the two before it would prove nothing.
TEST(what_is_hidden_and_not_flushed_is_wrong_in_memory_of_a_gpu) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: a GPU that needs no flush";
    return;
  }
  puts_in_place();
  write_and_read(false);
}

// By the plugin these would be wrong: nothing flushes.
TEST(a_small_request_in_memory_of_a_gpu_travels_in_the_control_stream) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: a GPU that needs no flush";
    return;
  }
  puts_in_place();
  tcpx::Gpu& gpu = test_gpu(0);
  Agent a("a", true, with_compiler()), b("b", true, with_compiler());
  CHECK_EQ(a.load(b), kSuccess);
  GpuBytes from(a, gpu, 3), to(b, gpu, 0), back(a, gpu, 0);
  Metadata* known = nullptr;
  CHECK_EQ(a.backend->load_remote_metadata({{0, 0, 0}, to.blob()}, kVram, "b", known), kSuccess);
  const std::vector<Block> blocks = {{4096, 4096}, {12289, 1}, {1 << 20, 27 << 10}};
  std::vector<uint8_t> expected(kBytes);
  const std::vector<uint8_t> there = from.get();
  for (const Block& block : blocks)
    memcpy(expected.data() + block.at, there.data() + block.at, block.bytes);
  for (int i = 0; i < 3; ++i) CHECK_EQ(run(a, kWrite, from, to, known, blocks), kSuccess);
  CHECK(to.get() == expected);
  CHECK_EQ(run(a, kRead, back, to, known, blocks), kSuccess);
  CHECK(back.get() == expected);
  a.backend->unload_metadata(known);
}

// Who copies out of a GPU for a frame and cannot sends no such frame.
TEST(a_small_request_whose_copy_out_of_a_gpu_fails_is_an_error_and_moves_nothing) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: copies that fail";
    return;
  }
  tcpx::Gpu& gpu = test_gpu(0);
  for (const Operation operation : {kWrite, kRead}) {
    Agent a("a", true, with_compiler()), b("b", true, with_compiler());
    CHECK_EQ(a.load(b), kSuccess);
    GpuBytes here(a, gpu, 3), there(b, gpu, 7);
    Metadata* known = nullptr;
    CHECK_EQ(a.backend->load_remote_metadata({{0, 0, 0}, there.blob()}, kVram, "b", known),
             kSuccess);
    CHECK_EQ(run(a, operation, here, there, known, {{0, 8}}), kSuccess);
    const std::vector<uint8_t> before = (operation == kWrite ? there : here).get();
    const uint64_t calls = fake_call<uint64_t(const char*)>("fakecuda_calls")("cuMemcpyAsync");
    setenv("FAKECUDA_FAIL", ("cuMemcpyAsync:" + std::to_string(calls + 1)).c_str(), 1);
    const Status status = run(a, operation, here, there, known, {{4096, 4096}});
    unsetenv("FAKECUDA_FAIL");
    CHECK_EQ(status, operation == kWrite ? kBackend : kRemoteDisconnect);
    CHECK((operation == kWrite ? there : here).get() == before);
    CHECK_EQ(run(a, operation, here, there, known, {{4096, 4096}}), kSuccess);  // by a new link
    a.backend->unload_metadata(known);
  }
}

TEST(copies_of_a_gpu_that_stands_still_are_given_up_and_no_more_are_begun) {
  if (getenv("TCPX_MPI_REAL_GPU") != nullptr) {
    check::lacks() = "the fake driver: a GPU that stands still";
    return;
  }
  constexpr uint64_t kSome = 4096;
  constexpr double kPatience = 0.05;
  const tcpx::GpuMemory memory(test_gpu(0), kSome);
  Regions regions;
  std::vector<RegionRange> places;
  auto* const address = reinterpret_cast<uint8_t*>(memory.address());
  places.emplace_back(regions.add(address, kSome, true), 0, kSome);
  const auto calls = fake_call<uint64_t(const char*)>("fakecuda_calls");
  auto owner = std::make_unique<InlineBytes>();
  InlineBytes& bytes = *owner;
  bytes.open(0, kPatience);
  const std::vector<uint8_t> first(kSome, 1), second(kSome, 2);
  std::vector<uint8_t> back(kSome);
  bytes.scatter(first.data(), places);
  {
    const Held held;
    CHECK_THROWS(bytes.gather(places, back.data()), std::runtime_error, "the GPU copies nothing");
    const uint64_t begun = calls("cuMemcpyAsync");
    // What is under way is in the page-locked memory still.
    CHECK_THROWS(bytes.scatter(second.data(), places), std::runtime_error,
                 "the GPU copies nothing");
    CHECK_THROWS(bytes.gather(places, back.data()), std::runtime_error, "the GPU copies nothing");
    CHECK_EQ(calls("cuMemcpyAsync"), begun);
  }
  bytes.gather(places, back.data());
  CHECK(back == first);
  {
    const Held held;
    CHECK_THROWS(bytes.scatter(second.data(), places), std::runtime_error,
                 "the GPU copies nothing");
  }
  bytes.gather(places, back.data());
  CHECK(back == second);
  // The driver would wait in the end, too.
  const uint64_t streams = calls("cuStreamDestroy");
  {
    const Held held;
    CHECK_THROWS(bytes.gather(places, back.data()), std::runtime_error, "the GPU copies nothing");
    owner.reset();
    CHECK_EQ(calls("cuStreamDestroy"), streams);
  }
  InlineBytes idle;
  idle.open(0, kPatience);
  idle.gather(places, back.data());
  CHECK(back == second);
}

TEST(a_transfer_within_one_agent_is_a_copy_on_the_gpu) {
  tcpx::Gpu& gpu = test_gpu(0);
  Agent b("b", true, with_compiler());
  GpuBytes from(b, gpu, 3), to(b, gpu, 0);
  Metadata* known = nullptr;
  CHECK_EQ(b.backend->load_local_metadata(to.local, known), kSuccess);
  CHECK_EQ(run(b, kWrite, from, to, known, {{0, kBytes}}), kSuccess);
  CHECK(to.get() == from.get());
  b.backend->unload_metadata(known);
}

TEST(host_memory_is_no_vram) {
  test_gpu(0);
  Agent a("a", true, with_compiler());
  std::vector<uint8_t> host(4096);
  Metadata* metadata = nullptr;
  const BlobDescriptor where{{reinterpret_cast<uintptr_t>(host.data()), host.size(), 0}, ""};
  CHECK_EQ(a.backend->register_memory(where, kVram, metadata), kInvalidParam);
}

CHECK_MAIN()
