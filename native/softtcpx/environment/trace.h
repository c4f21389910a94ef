// SOFTTCPX_TRACE: when each step of a message was, in a file of fixed records that a process maps.
//
// A ring: its first page says how many records were written in all, and record n lies at place
// n % capacity. The file is whole whenever the process ends. Without the variable each step costs
// one look at a pointer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softtcpx {

struct Settings;
struct Object;

// docs/reference/softtcpx.md and tcpx_mpi/report/plugin_trace.py have the same numbers.
enum class TraceStep : uint16_t {
  kPosted = 1,      // isend or irecv has the request
  kWakes = 2,       // and has woken the worker, which slept
  kWoken = 3,       // the worker is awake
  kCopyBegun = 4,   // out of GPU memory: the piece was given to the copy engine's queue
  kCopyLanded = 5,  // the owner has seen it in page-locked memory
  kSending = 6,     // a socket has the piece to send
  kSent = 7,        // so many bytes, headers too, went into the socket
  kHeader = 8,      // the header of a piece was read
  kReceived = 9,    // so many bytes of it were read
  kWhole = 10,      // all bytes are there, and the list of pages is the caller's
  kDone = 11,       // test has said so
};

struct TraceRecord {
  int64_t ns;           // CLOCK_MONOTONIC
  uint64_t connection;  // the pointer that connect or accept gave
  uint64_t offset;      // of the piece in the message
  uint32_t message;     // posts of the connection before it
  uint32_t bytes;
  uint16_t step;
  uint16_t socket;  // of the connection; 0 where none has a part in it
  uint32_t thread;  // the kernel's number
};
static_assert(sizeof(TraceRecord) == 40, "the file has them");

struct TraceHeader {
  char magic[8];  // "STCPXTR1"
  uint32_t header_bytes;
  uint32_t record_bytes;
  uint64_t capacity;
  std::atomic<uint64_t> written;
  uint64_t process;
};
constexpr size_t kTraceHeaderBytes = 4096;

struct TraceFile {
  TraceHeader* header;
  TraceRecord* records;
};

// At init. Whatever keeps the file from being there is a warning, and nothing is traced.
void open_trace(const Settings& settings);

extern std::atomic<const TraceFile*> g_trace;  // none: not traced
void write_trace(const TraceFile& file, TraceStep step, const Object& connection, uint64_t message,
                 uint64_t offset, uint64_t bytes, long socket);

inline bool is_traced() {
  return __builtin_expect(g_trace.load(std::memory_order_relaxed) != nullptr, false);
}
inline void trace(TraceStep step, const Object& connection, uint64_t message, uint64_t offset,
                  uint64_t bytes, long socket = 0) {
  const TraceFile* file = g_trace.load(std::memory_order_relaxed);
  if (__builtin_expect(file != nullptr, false))
    write_trace(*file, step, connection, message, offset, bytes, socket);
}

}  // namespace softtcpx
