// What goes wrong on a GPU, told by the fake driver; and that nothing is over before it is.
#include <sched.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "engine/clock.h"
#include "memory/cuda_slots.h"
#include "unpack_scene.h"

using namespace tcpx;

namespace {

std::string folder() {
  char name[] = "/tmp/tcpx-mpi-test-XXXXXX";
  return mkdtemp(name);
}

std::string only_file(const std::string& directory) {
  FILE* list = popen(("ls " + directory).c_str(), "r");
  char name[256] = {};
  CHECK_EQ(fscanf(list, "%255s", name), 1);
  pclose(list);
  return directory + "/" + name;
}

std::string contents(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

}  // namespace

TEST(nothing_is_finished_while_the_gpu_has_not_got_to_it) {
  for (const UnpackMode mode : {UnpackMode::kKernel, UnpackMode::kCopies, UnpackMode::kHost}) {
    UnpackScene scene(Bounce::kPinned, 4096, 4096);
    CudaUnpacker unpacker(0, mode);
    {
      const Held held;
      scene.receive(unpacker, 0, 64, {{0, 64, 0}});
      CHECK_EQ(unpacker.finished(), uint64_t{0});
      unpacker.flush();
      for (int i = 0; i < 1000; ++i) CHECK_EQ(unpacker.finished(), uint64_t{0});
    }
    scene.finish(unpacker);
    CHECK_EQ(scene.difference(), std::string());
  }
}

TEST(an_unpacker_of_a_gpu_that_is_stuck_ends_and_frees_nothing_that_it_writes_to) {
  UnpackScene scene(Bounce::kPinned, 4096, 4096);
  auto unpacker = std::make_unique<CudaUnpacker>(0, UnpackMode::kHost);
  {
    const Held held;
    scene.receive(*unpacker, 0, 64, {{0, 64, 0}});
    unpacker->flush();
    unpacker.reset();  // not after its work, which begins when `held` is gone
  }
  // What was under way ends well: the fake driver refuses writes to memory that is not there.
  const int64_t deadline = now_ns() + 20'000'000'000;
  while (!scene.difference().empty() && now_ns() < deadline) sched_yield();
  CHECK_EQ(scene.difference(), std::string());
}

TEST(a_flush_is_one_launch_for_all_that_is_ready_and_none_for_nothing) {
  UnpackScene scene(Bounce::kPinned, 4096, 1 << 16, 4);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  const auto launches = [] {
    return fake_call<uint64_t(const char*)>("fakecuda_calls")("cuLaunchKernel");
  };
  unpacker.flush();
  CHECK_EQ(launches(), uint64_t{0});
  for (size_t i = 0; i < 16; ++i) scene.receive(unpacker, 100 * i, 64, {{0, 64, 0}}, i % 4);
  unpacker.flush();
  unpacker.flush();
  CHECK_EQ(launches(), uint64_t{1});
  scene.finish(unpacker);
}

TEST(a_launch_that_is_refused_is_a_failure_with_call_and_code) {
  setenv("FAKECUDA_FAIL", "cuLaunchKernel:2:719", 1);
  UnpackScene scene(Bounce::kPinned, 4096, 4096);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  scene.receive(unpacker, 0, 64, {{0, 64, 0}});
  scene.finish(unpacker);
  scene.receive(unpacker, 0, 64, {{0, 64, 0}});
  unpacker.flush();
  CHECK_EQ(std::string(unpacker.failure().call), std::string("cuLaunchKernel"));
  CHECK_EQ(unpacker.failure().code, 719);
  CHECK_EQ(unpacker.finished(), uint64_t{1});
}

TEST(a_kernel_that_went_astray_is_found_while_its_ticket_is_awaited) {
  UnpackScene scene(Bounce::kPinned, 4096, 4096);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  const std::vector<uint8_t> unlocked(64);  // a bounce buffer that no GPU can see
  const NetUnpackFragment fragment{0, 64, 0};
  scene.queue().mem[0][0] = fragment;
  unpacker.submit({scene.queue().mem[0], 1, unlocked.data()},
                  reinterpret_cast<uint8_t*>(scene.destination()), 64);
  unpacker.flush();
  for (int i = 0; i < 10'000'000 && unpacker.failure().code == 0; ++i) unpacker.finished();
  CHECK_EQ(unpacker.failure().code, 700);
  CHECK_EQ(unpacker.finished(), uint64_t{0});
}

TEST(a_call_that_the_driver_refuses_is_an_error_with_its_name) {
  setenv("FAKECUDA_FAIL", "cuLaunchKernel:1:719", 1);
  const GpuMemory memory(test_gpu(), 1 << 20);
  CudaSlots slots(memory.address(), 4096, 0);
  slots.cut(4096, 0, 4096, 1);
  const PayloadSpan span{0, 4096, 0, 0};
  CHECK_THROWS(slots.fill(0, 1, 0, 0, &span, 1), CudaError,
               "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (719)");
}

TEST(what_was_compiled_is_kept_and_a_damaged_copy_is_made_anew) {
  fake_driver();
  const std::string cache = folder() + "/a/b";
  set_cuda_compiler({{FAKECUDA_FOLDER}, cache});
  const std::string cubin = compile_cuda("first", 9, 0);
  const std::string path = only_file(cache);
  const std::string kept = contents(path);
  CHECK(check::contains(kept, cubin));
  // From now on a compilation would fail: the copy must do.
  setenv("FAKENVRTC_FAIL", "1", 1);
  CHECK_EQ(compile_cuda("first", 9, 0), cubin);
  CHECK_THROWS(compile_cuda("second", 9, 0), CudaError, "told to fail");
  CHECK_THROWS(compile_cuda("first", 9, 1), CudaError, "told to fail");  // another kind of GPU
  unsetenv("FAKENVRTC_FAIL");
  for (const std::string& damaged :
       {kept.substr(0, kept.size() / 2), std::string(), kept.substr(0, kept.size() - 2) + "xy"}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    CHECK_EQ(compile_cuda("first", 9, 0), cubin);
    CHECK_EQ(contents(path), kept);
  }
}

TEST(a_cache_that_cannot_be_written_is_done_without) {
  fake_driver();
  set_cuda_compiler({{FAKECUDA_FOLDER}, "/proc/no/such"});
  CHECK(check::contains(compile_cuda("text", 9, 0), "text"));
}

TEST(without_a_gpu_the_reason_is_said) {
  setenv("FAKECUDA_DEVICES", "0", 1);
  fake_driver();
  CHECK_THROWS(gpus(), CudaUnavailable, "finds no GPU: cuInit: CUDA_ERROR_NO_DEVICE");
}

TEST(a_gpu_that_is_not_there_is_refused_with_how_many_there_are) {
  CHECK_EQ(test_gpu().facts.pci, std::string("0000:10:00.0"));
  CHECK_THROWS(use_gpu(2), CudaUnavailable, "no GPU 2: this process sees 2");
  CHECK_THROWS(use_gpu(-1), CudaUnavailable, "no GPU -1");
}

TEST(what_is_submitted_after_a_failure_overruns_nothing) {
  setenv("FAKECUDA_FAIL", "cuLaunchKernel:1:719", 1);
  UnpackScene scene(Bounce::kPinned, 4096, 1 << 16, 4);
  CudaUnpacker unpacker(0, UnpackMode::kKernel);
  for (size_t i = 0; i < 4 * kUnpackItems; ++i)
    scene.receive(unpacker, 100 * i, 64, {{0, 64, 0}}, i % 4);
  unpacker.flush();
  CHECK_EQ(std::string(unpacker.failure().call), std::string("cuLaunchKernel"));
  CHECK_EQ(unpacker.failure().code, 719);
}

CHECK_MAIN()
