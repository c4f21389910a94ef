#include "engine/signals.h"

#include <atomic>
#include <csignal>

namespace tcpx {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGUSR1};

std::atomic<int> g_stop{0}, g_sender{0};
std::atomic<bool> g_report{false};
std::atomic<void (*)(int)> g_on_stop{nullptr};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");
struct sigaction g_previous[3];
bool g_installed = false;

void on_signal(int number, siginfo_t* info, void*) {
  if (number == SIGUSR1) {
    g_report.store(true, std::memory_order_relaxed);
  } else {
    g_sender.store(info != nullptr ? info->si_pid : 0, std::memory_order_relaxed);
    g_stop.store(number, std::memory_order_relaxed);
    if (const auto tell = g_on_stop.load(std::memory_order_relaxed)) tell(number);
  }
}

}  // namespace

void install_signal_handlers(void (*on_stop)(int number)) {
  if (on_stop != nullptr) g_on_stop.store(on_stop, std::memory_order_relaxed);
  if (g_installed) return;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &g_previous[i]);
  g_installed = true;
}

void restore_signal_handlers() {
  if (!g_installed) return;
  for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &g_previous[i], nullptr);
  g_installed = false;
}

int stop_sender() { return g_sender.load(std::memory_order_relaxed); }
int stop_signal() { return g_stop.load(std::memory_order_relaxed); }
bool report_requested() { return g_report.load(std::memory_order_relaxed); }
bool take_report_request() { return g_report.exchange(false, std::memory_order_relaxed); }

}  // namespace tcpx
