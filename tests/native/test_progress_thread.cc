// The thread that drives, as its owner sees it.
#include <sched.h>

#include <ctime>
#include <vector>

#include "engine/progress_thread.h"
#include "rig.h"

using namespace tcpx;
using State = ProgressThread::State;

namespace {

BatchPlan plan_of(uint64_t iterations) {
  BatchPlan plan;
  plan.iterations = iterations;
  plan.stall_ns = 10'000'000'000;
  return plan;
}

}  // namespace

TEST(batches_run_one_after_another_on_one_thread) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {64}, 16, 5);
  std::thread::id by;
  int threads = 0;
  rig.net.watch = [&](const FakeEvent&) {
    threads += by != std::this_thread::get_id();
    by = std::this_thread::get_id();
  };
  ProgressThread thread(rig.driver);
  CHECK_EQ(thread.wait(0), State::kIdle);
  for (int batch = 0; batch < 3; ++batch) {
    thread.start(plan_of(5));
    CHECK_EQ(thread.wait(10), State::kFinished);
    CHECK_EQ(rig.net.count(Call::kConsumed), 20u * (batch + 1));
  }
  CHECK_EQ(threads, 1);
  CHECK(by != std::this_thread::get_id());
}

TEST(a_wait_ends_though_the_batch_does_not) {
  Rig rig;
  rig.load(Steps().receive(0).send(0), {64}, 16, 1);
  std::atomic<bool> may{false};
  rig.net.completes = [&](const FakeRequest&) { return may.load(); };
  ProgressThread thread(rig.driver);
  thread.start(plan_of(1));
  const int64_t start = now_ns();
  CHECK_EQ(thread.wait(0.05), State::kRunning);
  CHECK_LE(int64_t{45'000'000}, now_ns() - start);
  may = true;
  CHECK_EQ(thread.wait(10), State::kFinished);
  CHECK_EQ(rig.driver.fault().kind, FaultKind::kNone);
}

TEST(what_begins_with_a_batch_is_told_once_and_not_while_it_waits_for_its_start) {
  Rig rig;
  rig.load(Steps().receive(0), {16}, 16, 1);
  std::vector<int64_t> told;
  uint64_t calls_before = 0;
  rig.driver.before_start([&] {
    told.push_back(now_ns());
    calls_before = rig.net.calls;
  });
  for (const int64_t ahead : {int64_t{3'000'000}, int64_t{-1'000'000}, int64_t{0}}) {
    told.clear();
    const uint64_t calls = rig.net.calls;
    BatchPlan plan = plan_of(1);
    const int64_t now = now_ns();
    plan.start_ns = ahead != 0 ? now + ahead : 0;
    CHECK(rig.driver.run(plan));
    CHECK_EQ(told.size(), size_t{1});
    CHECK_EQ(calls_before, calls);  // before the first sweep
    // 20 us ahead of its start, or later where this thread had lost its core.
    if (ahead > 0) CHECK_LE(plan.start_ns - 20'000, told[0]);
  }
}

TEST(cpu_time_is_that_of_the_batch) {
  Rig rig;
  rig.load(Steps().receive(0), {16}, 16, 1);
  // It polls until that has cost it 20 ms, however long the machine takes to give them.
  int64_t first = -1;
  rig.net.completes = [&](const FakeRequest&) {
    timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    const int64_t ns = used.tv_sec * 1'000'000'000 + used.tv_nsec;
    if (first < 0) first = ns;
    return ns - first > 20'000'000;
  };
  ProgressThread thread(rig.driver);
  thread.start(plan_of(1));
  CHECK_EQ(thread.wait(60), State::kFinished);
  const auto cpu = thread.cpu_time();
  CHECK_LT(int64_t{20'000'000}, cpu.user_ns + cpu.system_ns);
  CHECK_LT(cpu.user_ns + cpu.system_ns, int64_t{5'000'000'000});
}

TEST(the_thread_can_be_pinned_and_a_cpu_that_is_not_there_is_refused) {
  Rig rig;
  rig.load(Steps().receive(0), {16}, 16, 1);
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof(allowed), &allowed);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  int seen = -1;
  rig.net.watch = [&](const FakeEvent&) { seen = sched_getcpu(); };
  ProgressThread thread(rig.driver);
  CHECK(!thread.pin(CPU_SETSIZE - 1));
  CHECK(thread.pin(cpu));
  thread.start(plan_of(1));
  CHECK_EQ(thread.wait(10), State::kFinished);
  CHECK_EQ(seen, cpu);
}

CHECK_MAIN()
