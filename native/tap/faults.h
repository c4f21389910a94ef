// TCPX_TAP_FAULT: faults put into any plugin, so that what its caller makes of them can be tried.
//
//   WHAT[,call=NAME][,comm=N][,at=N][,p=SHARE][,seed=N][,rank=N][;...]
//
//   delay=US     a request is not seen done before so long after its post; other calls sleep
//   stuck        from then on no request of the comm is done, nor is the plugin asked
//   drop         this request is never done
//   error=CODE   the call returns it, and the plugin is not called
//   disconnect   from then on all but closing of the comm returns 6 (remote error)
//   size=N       test reports so many bytes more (or fewer) for a receive
//   flip=N       byte N of a receive into host memory is another one when it is done
//
// comm and at count from 0, as the tap's lines and files do: at is the number of the request on its
// comm, or of the call. Only here are there locks in calls that move data, and only if asked.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tap/under_way.h"

namespace tap {

// Entries of the table, in NCCL's spelling.
constexpr const char* kCallNames[] = {
    "init",        "devices",     "getProperties", "listen",      "connect",     "accept",
    "regMr",       "regMrDmaBuf", "deregMr",       "isend",       "irecv",       "iflush",
    "test",        "closeSend",   "closeRecv",     "closeListen", "getDeviceMr", "irecvConsumed",
    "makeVDevice", "finalize",    "setNetAttr"};
enum class Call : uint8_t {
  kInit,
  kDevices,
  kGetProperties,
  kListen,
  kConnect,
  kAccept,
  kRegMr,
  kRegMrDmaBuf,
  kDeregMr,
  kIsend,
  kIrecv,
  kIflush,
  kTest,
  kCloseSend,
  kCloseRecv,
  kCloseListen,
  kGetDeviceMr,
  kIrecvConsumed,
  kMakeVDevice,
  kFinalize,
  kSetNetAttr,
};

class Faults {
 public:
  explicit Faults(const std::string& text);  // throws BadSetting
  const std::string& text() const { return text_; }

  // Of a call that is no request: the code to return, or -1 to go on.
  int of_call(Call call);
  void registered(const void* mhandle, int type);

  // Of isend and irecv, before; and of the request that came of it. `data`: its first buffer.
  int of_post(Call call, const Comm& comm);
  void posted(Call call, const Comm& comm, const void* request, void* data, uint64_t bytes,
              const void* mhandle);
  // Of test: as of_call; 0 with `*done` 0 where it is held back.
  int of_test(const Request& request, const void* pointer);
  // The plugin has said that it is done.
  void done(const void* pointer, int* done, int* sizes);

 private:
  enum class What { kDelay, kStuck, kDrop, kError, kDisconnect, kSize, kFlip };
  struct Fault {
    What what;
    int64_t value = 0;
    int call = -1;  // of any that posts
    int64_t comm = -1, at = -1;
    double share = 1;
    uint64_t seed = 1;
  };
  struct Held {  // a request with a fault
    const Fault* fault;
    int64_t due_ns;
    void* data;
    uint64_t bytes;
    bool over;  // the plugin has done it
  };
  enum class State { kStuck, kGone };

  static Fault parse(const std::string& text, int64_t* rank);
  bool strikes(const Fault& fault, int64_t comm, int64_t number) const;

  std::string text_;
  std::vector<Fault> faults_;
  std::mutex mutex_;
  std::array<int64_t, std::size(kCallNames)> calls_{};
  std::unordered_map<const void*, int> types_;  // of memory, by mhandle
  std::unordered_map<const void*, Held> held_;
  std::unordered_map<uint32_t, State> comms_;
};

}  // namespace tap
