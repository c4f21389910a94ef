#include "softtcpx/environment/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace softtcpx {
namespace {

// NCCL's bits for lines about set-up and about the network.
constexpr unsigned long kInitSubsystem = 1;
constexpr unsigned long kNetSubsystem = 16;
std::atomic<NetLogger> g_logger{nullptr};

}  // namespace

void set_logger(NetLogger logger) { g_logger.store(logger, std::memory_order_release); }

void log_line(int level, const char* function, int line, const char* format, ...) {
  const NetLogger logger = g_logger.load(std::memory_order_acquire);
  if (logger == nullptr) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  logger(level, kNetSubsystem, function, line, "%s", text);
}

void log_init_line(const char* function, int line, const char* text) {
  const NetLogger logger = g_logger.load(std::memory_order_acquire);
  if (logger != nullptr)
    logger(kNetLogInfo, kInitSubsystem | kNetSubsystem, function, line, "%s", text);
}

}  // namespace softtcpx
