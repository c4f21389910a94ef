// A CUDA driver for machines without a GPU, with teeth: what a real one would punish sometimes, on
// some machine, it punishes always.
//
// - Device memory is mapped twice: callers get a view that the CPU may not touch, so that a host
//   that reads or writes through a device pointer crashes; copies and kernels use the other one.
//   Each allocation ends before a page that neither view may touch; small ones are not zero.
// - What is asynchronous runs on a thread of its stream, later; `fakecuda_hold(1)` holds all of it
//   back until `fakecuda_hold(0)`.
// - What a call without a stream leaves under way when it returns (a copy to the device from memory
//   that is not page-locked or from the device, a fill) is done when somebody waits for the default
//   stream, and no sooner: a stream that does not block finds the bytes as they were.
// - A call without the context it needs is refused, and so is a stream of another device.
// - A graph that is captured is spoilt by what may spoil it, but captures nothing.
// - Kernels reach their own device's memory and page-locked memory, and nothing else: an error that
//   stays with the context.
//
// FAKECUDA_DEVICES (2) says how many devices there are; FAKECUDA_FAIL=cuMemAlloc:3 or
// cuMemAlloc:3:700 makes the third such call return 999, or 700. CUDA_VISIBLE_DEVICES is honoured
// as a list of numbers. FAKECUDA_CAPABILITY=80 makes them older than Hopper, FAKECUDA_DMA_BUF=0
// unable to hand their memory over as dma-bufs, which here are files without content. The numbers
// and layouts are those of the public driver API.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;

namespace fakecuda {

enum : CUresult {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kNotSupported = 801,
  kUnknown = 999,
};

struct Context;

// Work in order, on a thread of its own.
class Stream {
 public:
  Stream(Context& context, bool blocking, bool lazy = false);
  ~Stream();  // what was submitted is done first, as the real driver sees to
  void submit(std::function<void()> work);
  void want();  // what was submitted may no longer be put off
  void wait();
  bool idle();

  Context& context;
  const bool blocking;  // waits for the legacy default stream, and it for this
  const bool lazy;      // does nothing before somebody wants it

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  size_t unfinished_ = 0;
  bool wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0;  // times submitted, and times reached
  uint64_t reached = 0;
  int64_t reached_ns = 0;
};

struct Context {  // the primary one of a device: there are no others
  CUdevice device = 0;
  int retained = 0;
  std::atomic<CUresult> error{kSuccess};  // of asynchronous work; stays
  std::shared_ptr<Stream> legacy;
  std::map<Stream*, std::shared_ptr<Stream>> streams;
};

// The memory of a device. Addresses of the forbidden view are those that callers know.
class Arena {
 public:
  static constexpr size_t kBytes = size_t{8} << 30;

  explicit Arena(CUdevice device);
  CUdeviceptr allocate(size_t bytes);  // 0: none left
  bool free(CUdeviceptr pointer);
  bool range(CUdeviceptr pointer, CUdeviceptr* base, size_t* bytes) const;
  bool holds(CUdeviceptr pointer) const { return pointer - forbidden_ < kBytes; }
  uint8_t* open(CUdeviceptr pointer) const { return open_ + (pointer - forbidden_); }
  size_t allocated() const { return allocated_; }

  const CUdevice device;

 private:
  struct Allocation {
    size_t bytes;
    size_t span_begin, span_bytes;  // whole pages
  };
  int file_;
  CUdeviceptr forbidden_;
  uint8_t* open_;
  std::map<size_t, Allocation> allocations_;  // by offset
  size_t allocated_ = 0;
};

struct Pinned {
  size_t bytes;
  bool own;  // allocated here, not registered
};

// Everything there is; `mutex` guards the tables, not the work of streams.
struct Driver {
  std::recursive_mutex mutex;
  bool initialized = false;
  std::map<CUdevice, std::unique_ptr<Arena>> arenas;
  std::map<CUdevice, Context> contexts;
  std::map<CUdeviceptr, Pinned> pinned;
  std::atomic<uint64_t> version{1};  // of what is allocated and page-locked
  std::map<std::string, uint64_t> calls;
  std::map<Stream*, bool> captures;  // of graphs; false: spoilt
};
Driver& driver();

int visible_devices();
bool exports_dma_bufs();
Context* current();

// Counts the call; fails it where FAKECUDA_FAIL says so, or without cuInit.
CUresult enter(const char* call);
// The same for a call that needs a context, which may have failed before.
CUresult enter_context(const char* call, Context** context);

// While a graph is captured in global mode a call that asks or waits, or gives memory or takes it,
// is refused to threads of that mode, and spoils the graph.
CUresult refuse_while_captured();

// The arena that holds a device pointer, or NULL.
Arena* arena_of(CUdeviceptr pointer);
bool is_pinned(CUdeviceptr pointer, size_t bytes);
// What the CPU reads and writes instead; NULL: [pointer, pointer + bytes) is neither inside one
// allocation nor, where `host_too`, any address of the host.
uint8_t* reach(CUdeviceptr pointer, size_t bytes, bool host_too);
// As a kernel on `device` sees it: its own memory, or page-locked.
uint8_t* reach_from(CUdevice device, CUdeviceptr pointer, size_t bytes);

// A stream handle as calls take it (NULL is the legacy one); NULL with an error set otherwise.
Stream* stream_of(Context* context, void* handle, CUresult* error);
// The streams of a context, to be waited for without the lock.
std::vector<std::shared_ptr<Stream>> streams_of(Context* context, bool blocking_only);
// Work of the legacy stream comes after that of every blocking one, and theirs after its own: what
// is submitted to `stream` next does. Releases the lock.
void keep_order(std::unique_lock<std::recursive_mutex>& lock, const Stream& stream);

struct Grid {
  unsigned blocks;
  unsigned rows;  // of blocks
  unsigned threads;
};
// A kernel compiled for the CPU: arguments as cuLaunchKernel gets them; false: it reached for
// memory that is not its own.
struct Kernel {
  const char* name;
  size_t argument_bytes;  // of its one argument
  bool (*run)(CUdevice device, Grid grid, const void* argument);
};
const Kernel* find_kernel(const std::string& name);

}  // namespace fakecuda

#define FAKECUDA_API extern "C" __attribute__((visibility("default")))
// First line of a call: `ENTER();`, or `ENTER_CONTEXT();` or `ENTER_UNLESS_CAPTURED();`, which
// declare `context`.
#define ENTER()                                                \
  std::unique_lock<std::recursive_mutex> lock(driver().mutex); \
  if (const CUresult refused = enter(__func__)) return refused
#define ENTER_CONTEXT()                                        \
  std::unique_lock<std::recursive_mutex> lock(driver().mutex); \
  Context* context = nullptr;                                  \
  if (const CUresult refused = enter_context(__func__, &context)) return refused
#define ENTER_UNLESS_CAPTURED() \
  ENTER_CONTEXT();              \
  if (const CUresult refused = refuse_while_captured()) return refused
