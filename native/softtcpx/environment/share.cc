#include "softtcpx/environment/share.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "softtcpx/environment/settings.h"

namespace softtcpx {
namespace {

// Of each process's cores: that of the thread that posts and tests, and one for what else there is.
constexpr int64_t kOtherThreads = 2;
// In host memory, as of `tcpx-mpi run` with its progress threads.
constexpr int64_t kFewestCores = 4;
constexpr int kMostHostWorkers = 8;
constexpr char kName[] = "softtcpx/";
constexpr char kGroups[] = "/sys/fs/cgroup";

// False if there is no such process in sight.
bool affinity_of(pid_t process, Cpus* cpus) {
  unsigned long words[Cpus().size() / (8 * sizeof(unsigned long))] = {};
  if (::sched_getaffinity(process, sizeof words, reinterpret_cast<cpu_set_t*>(words)) != 0)
    return false;
  constexpr size_t kBits = 8 * sizeof *words;
  for (size_t cpu = 0; cpu < cpus->size(); ++cpu)
    cpus->set(cpu, (words[cpu / kBits] >> cpu % kBits & 1) != 0);
  return true;
}

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// In CPUs; 0 where there is no limit. "max" and -1 are none.
double limit_of(const std::string& group) {
  double quota = 0, period = 0;
  std::istringstream fields(line_of(group + "/cpu.max"));
  if (!(fields >> quota >> period)) {
    quota = std::atof(line_of(group + "/cpu.cfs_quota_us").c_str());
    period = std::atof(line_of(group + "/cpu.cfs_period_us").c_str());
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The control group's folder, by a line of /proc/self/cgroup; empty: not that of CPUs.
std::string folder_of(const std::string& line, std::string* controllers) {
  const size_t first = line.find(':'), second = line.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return "";
  *controllers = line.substr(first + 1, second - first - 1);
  const std::string among = "," + *controllers + ",";
  if (!controllers->empty() && among.find(",cpu,") == std::string::npos) return "";
  return line.substr(second + 1);
}

}  // namespace

Share share_of(const Cpus& own, const std::vector<Cpus>& others, double quota) {
  Cpus all = own;
  int64_t ranks = 1;
  for (const Cpus& other : others) {
    if ((own & other).none()) continue;  // bound apart
    all |= other;
    ++ranks;
  }
  auto cpus = static_cast<int64_t>(all.count());
  if (quota > 0) cpus = std::min(cpus, static_cast<int64_t>(std::ceil(quota)));
  return {cpus, ranks};
}

int workers_of(const Share& share) {
  return static_cast<int>(
      std::clamp<int64_t>(share.cpus / share.ranks - kOtherThreads, 1, kMaxThreads));
}

int host_workers_of(const Share& share) {
  if (share.cpus / share.ranks < kFewestCores) return 0;
  return std::min(workers_of(share), kMostHostWorkers);
}

double cpu_quota(const std::string& root) {
  double least = 0;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::string controllers, path = folder_of(line, &controllers);
    if (path.empty()) continue;
    // A container sees its own group as the root, whatever path the kernel tells it.
    const std::string top = root + kGroups + (controllers.empty() ? "" : "/" + controllers);
    for (;;) {
      const double limit = limit_of(top + (path == "/" ? "" : path));
      if (limit > 0 && (least == 0 || limit < least)) least = limit;
      const size_t slash = path.rfind('/');
      if (path.size() < 2 || slash == std::string::npos) break;
      path.resize(std::max<size_t>(slash, 1));
    }
  }
  return least;
}

Presence::Presence() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // Once a process for each copy of the library in it.
  const int length = std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s%d/%p", kName,
                                   static_cast<int>(::getpid()), static_cast<const void*>(this));
  if (socket_.valid() && ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name),
                                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                                       static_cast<size_t>(length))) != 0)
    socket_.reset();
}

std::vector<Cpus> Presence::others() const {
  const std::string mark = std::string(" @") + kName;
  std::set<int> processes;
  std::ifstream table("/proc/net/unix");
  for (std::string line; std::getline(table, line);) {
    const size_t at = line.find(mark);
    if (at != std::string::npos) processes.insert(std::atoi(line.c_str() + at + mark.size()));
  }
  processes.erase(static_cast<int>(::getpid()));
  Cpus own;
  affinity_of(0, &own);
  std::vector<Cpus> found;
  for (const int process : processes) {
    // One of another container has a number that means nothing here, and CPUs that are not known.
    Cpus cpus = own;
    affinity_of(process, &cpus);
    found.push_back(cpus);
  }
  return found;
}

Share share_here(const Presence& presence) {
  Cpus own;
  if (!affinity_of(0, &own)) own.set(0);
  return share_of(own, presence.others(), cpu_quota());
}

}  // namespace softtcpx
