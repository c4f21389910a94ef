#include "softtcpx/transfer/poller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <deque>
#include <mutex>
#include <vector>

namespace softtcpx {
namespace {

constexpr int kEventsASweep = 64;
constexpr uintptr_t kBitMask = alignof(ReadyCell) - 1;  // the bit number rides in the address

struct CellPool {
  std::mutex mutex;
  std::deque<ReadyCell> all;
  std::vector<ReadyCell*> free;
};

CellPool& cell_pool() {
  static CellPool* pool = new CellPool;  // outlives every thread: never destroyed
  return *pool;
}

}  // namespace

ReadyCell* take_cell() {
  CellPool& pool = cell_pool();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  if (pool.free.empty()) {
    pool.all.emplace_back();
    pool.free.reserve(pool.all.size());  // so that return_cell cannot fail
    return &pool.all.back();
  }
  ReadyCell* cell = pool.free.back();
  pool.free.pop_back();
  return cell;
}

void return_cell(ReadyCell* cell) {
  CellPool& pool = cell_pool();
  const std::lock_guard<std::mutex> lock(pool.mutex);
  cell->events.store(0, std::memory_order_relaxed);
  pool.free.push_back(cell);
}

bool Poller::open() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) return false;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = 0;  // no cell: it only ends a wait
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0;
}

bool Poller::add(int fd, uint32_t epoll_events, ReadyCell* cell, int bit) {
  epoll_event event{};
  event.events = epoll_events | EPOLLET;
  event.data.u64 = reinterpret_cast<uintptr_t>(cell) | static_cast<uintptr_t>(bit);
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Poller::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then a wake-up is on its way already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Poller::take_wake() {
  uint64_t wakes;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &wakes, sizeof wakes);
}

void Poller::wait_for_wake(int timeout_ms) {
  pollfd wake{wake_.get(), POLLIN, 0};
  if (::poll(&wake, 1, timeout_ms) > 0) take_wake();
}

bool Poller::deliver(int timeout_ms) {
  epoll_event events[kEventsASweep];
  const int count = ::epoll_wait(epoll_.get(), events, kEventsASweep, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const uintptr_t tag = events[i].data.u64;
    auto* cell = reinterpret_cast<ReadyCell*>(tag & ~kBitMask);
    if (cell == nullptr) {
      take_wake();
      continue;
    }
    uint64_t bits = uint64_t{1} << (tag & kBitMask);
    if ((events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
      bits |= bits << ReadyCell::kHangUpShift;
    cell->events.fetch_or(bits, std::memory_order_release);
  }
  // After the flags: whoever sees the new number sees them too.
  generation_.fetch_add(1, std::memory_order_release);
  return count > 0;
}

}  // namespace softtcpx
