// How many workers softtcpx takes where nobody says: by CPUs, quota and the other ranks of a node.
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "check.h"
#include "softtcpx/environment/share.h"

using namespace softtcpx;

namespace {

Cpus range(size_t first, size_t end) {
  Cpus cpus;
  for (size_t cpu = first; cpu < end; ++cpu) cpus.set(cpu);
  return cpus;
}

int workers(const Cpus& own, const std::vector<Cpus>& others, double quota = 0) {
  return workers_of(share_of(own, others, quota));
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string fresh_root() {
  char folder[] = "/tmp/softtcpx-share-XXXXXX";
  return ::mkdtemp(folder);
}

}  // namespace

TEST(workers_are_the_cores_that_the_ranks_of_a_node_leave_each) {
  const Cpus all = range(0, 32);
  CHECK_EQ(workers(all, {}), 16);  // at most
  CHECK_EQ(workers(all, {all}), 14);
  CHECK_EQ(workers(all, {all, all, all}), 6);
  CHECK_EQ(workers(range(0, 2), {range(0, 2)}), 1);  // at least
  CHECK_EQ(workers(range(0, 208), std::vector<Cpus>(7, range(0, 208))), 16);
}

TEST(workers_in_host_memory_need_four_cores_a_process) {
  auto host_workers = [](const Cpus& own, const std::vector<Cpus>& others, double quota = 0) {
    return host_workers_of(share_of(own, others, quota));
  };
  CHECK_EQ(host_workers(range(0, 1), {}), 0);
  CHECK_EQ(host_workers(range(0, 2), {}), 0);
  CHECK_EQ(host_workers(range(0, 4), {}), 2);
  CHECK_EQ(host_workers(range(0, 4), {range(0, 4)}), 0);
  CHECK_EQ(host_workers(range(0, 16), {range(0, 16)}), 6);
  CHECK_EQ(host_workers(range(0, 64), {range(0, 64)}), 8);  // at most
  CHECK_EQ(host_workers(range(8, 12), {range(0, 8)}), 2);   // a mask of its own
  CHECK_EQ(host_workers(range(0, 64), {}, 3.5), 2);
  CHECK_EQ(host_workers(range(0, 64), {}, 2), 0);
}

TEST(ranks_that_are_bound_apart_do_not_count) {
  CHECK_EQ(workers(range(0, 8), {range(8, 16)}), 6);
  CHECK_EQ(workers(range(0, 8), {range(8, 16), range(0, 8)}), 2);
  // Half of each one's CPUs are the other's, too.
  CHECK_EQ(workers(range(0, 8), {range(4, 12)}), 4);
}

TEST(a_quota_is_shared_by_the_ranks) {
  CHECK_EQ(workers(range(0, 64), {}, 8), 6);
  CHECK_EQ(workers(range(0, 64), {range(0, 64)}, 15.5), 6);
  CHECK_EQ(workers(range(0, 4), {}, 100), 2);
}

TEST(the_tightest_quota_from_the_own_group_up_holds) {
  const std::string root = fresh_root();
  CHECK_EQ(cpu_quota(root), 0.0);
  write(root + "/proc/self/cgroup", "0::/pod/container\n");
  write(root + "/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  CHECK_EQ(cpu_quota(root), 0.0);
  write(root + "/sys/fs/cgroup/pod/cpu.max", "250000 100000\n");
  CHECK_EQ(cpu_quota(root), 2.5);
  write(root + "/sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK_EQ(cpu_quota(root), 2.0);
  std::filesystem::remove_all(root);
}

TEST(a_quota_of_the_first_version_of_control_groups_is_read_too) {
  const std::string root = fresh_root();
  write(root + "/proc/self/cgroup", "5:memory:/here\n3:cpu,cpuacct:/here\n1:cpuset:/\n");
  write(root + "/sys/fs/cgroup/cpu,cpuacct/here/cpu.cfs_quota_us", "600000\n");
  write(root + "/sys/fs/cgroup/cpu,cpuacct/here/cpu.cfs_period_us", "100000\n");
  write(root + "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write(root + "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK_EQ(cpu_quota(root), 6.0);
  std::filesystem::remove_all(root);
}

TEST(a_process_is_seen_while_it_has_the_plugin) {
  // Others may begin and end meanwhile. A network of its own, if it may have one, shows none.
  if (::unshare(CLONE_NEWNET) != 0) ::unshare(CLONE_NEWUSER | CLONE_NEWNET);
  const Presence here, twice;  // two copies of the library are one process
  const size_t before = here.others().size();
  int told[2], go[2];
  CHECK(::pipe(told) == 0 && ::pipe(go) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    cpu_set_t first;
    CPU_ZERO(&first);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++cpu) {
      CPU_SET(cpu, &first);
      if (::sched_setaffinity(0, sizeof first, &first) != 0) CPU_CLR(cpu, &first);
    }
    const Presence there;
    char byte = 0;
    const bool heard = ::write(told[1], "x", 1) == 1 && ::read(go[0], &byte, 1) == 1;
    ::_exit(heard ? 0 : 1);
  }
  char byte = 0;
  CHECK_EQ(::read(told[0], &byte, 1), ssize_t{1});
  const std::vector<Cpus> others = here.others();
  CHECK_EQ(others.size(), before + 1);
  CHECK(std::any_of(others.begin(), others.end(),
                    [](const Cpus& cpus) { return cpus.count() == 1; }));
  CHECK_EQ(share_here(here).ranks, int64_t(before + 2));
  CHECK_EQ(::write(go[1], "x", 1), ssize_t{1});
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(here.others().size(), before);
}

CHECK_MAIN()
