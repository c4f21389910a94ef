#include "library/outlived.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace tcpx_p2p::outlived {
namespace {

struct Estate {
  std::shared_ptr<tcpx::Plugin> plugin;  // before what uses it
  std::shared_ptr<tcpx::Leftovers> leftovers;
  pid_t owner;  // in a forked child they are the parent's
};

std::mutex g_mutex;
std::vector<Estate> g_estates;
std::atomic<size_t> g_count{0};

}  // namespace

void add(std::shared_ptr<tcpx::Plugin> plugin, std::shared_ptr<tcpx::Leftovers> leftovers) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_count += leftovers->count();
  g_estates.push_back({std::move(plugin), std::move(leftovers), getpid()});
}

bool advance() {
  if (g_count == 0) return false;
  const std::unique_lock<std::mutex> lock(g_mutex, std::try_to_lock);
  if (!lock) return false;  // another thread is at it
  bool moved = false;
  size_t left = 0;
  for (const Estate& estate : g_estates) {
    if (estate.owner != getpid()) continue;
    moved |= estate.leftovers->advance();
    left += estate.leftovers->count();
  }
  g_estates.erase(
      std::remove_if(g_estates.begin(), g_estates.end(),
                     [](const Estate& estate) { return estate.leftovers->count() == 0; }),
      g_estates.end());
  g_count = left;
  return moved;
}

size_t count() { return g_count; }

}  // namespace tcpx_p2p::outlived
