// What the tables of all versions share: the plugin below, and what is done with its calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "net/abi.h"
#include "tap/faults.h"
#include "tap/recorder.h"

namespace tap {

// In a page that is empty in a forked child: there calls are passed on, and nothing else.
struct Live {
  std::atomic<Recorder*> recorder;
  std::atomic<Faults*> faults;
};
extern Live* g_live;

inline Recorder* recorder() { return g_live->recorder.load(std::memory_order_acquire); }
inline Faults* faults() { return g_live->faults.load(std::memory_order_relaxed); }

// When this library is loaded: the table of the plugin, or nullptr, which init says.
const void* load_inner(int abi, const void* own);

// Around init: the code of a tap that does not start, or 0.
int before_init(NetLogger logger);
void after_init(NetLogger logger, int abi, const char* name);
void after_finalize();

// The end that a listen comm, or a handle that connect was given, belongs to.
void listens(const void* handle, int device, const void* listen_comm);
void listens_no_more(const void* listen_comm);
void accepted(const void* listen_comm, const void* recv_comm);
HandleHash connects(const void* handle);  // before the call, which may write into it
void connected(const void* handle, const HandleHash& hash, int device, int code, const void* comm);

}  // namespace tap
