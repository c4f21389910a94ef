// The one door to the caller's logger.
#pragma once

#include "net/abi_v7.h"

namespace softtcpx {

// A NULL logger is allowed: everything is then silent.
void set_logger(NetLogger logger);

// Never called while data moves: only at set-up, at close and for a connection that has failed.
__attribute__((format(printf, 4, 5))) void log_line(int level, const char* function, int line,
                                                    const char* format, ...);

// A line of init, of NCCL's subsystems for that and for the network.
void log_init_line(const char* function, int line, const char* text);

}  // namespace softtcpx

#define SOFTTCPX_WARN(...) ::softtcpx::log_line(kNetLogWarn, __func__, __LINE__, __VA_ARGS__)
#define SOFTTCPX_INFO(...) ::softtcpx::log_line(kNetLogInfo, __func__, __LINE__, __VA_ARGS__)
