#include "softtcpx/environment/trace.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "softtcpx/environment/log.h"
#include "softtcpx/environment/objects.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/environment/socket.h"

namespace softtcpx {

std::atomic<const TraceFile*> g_trace{nullptr};

namespace {

void warn(const std::string& path, const char* what, int why) {
  SOFTTCPX_WARN("SOFTTCPX_TRACE: %s: %s: %s; nothing is traced", path.c_str(), what,
                std::strerror(why));
}

uint32_t this_thread() {
  static thread_local const auto number = static_cast<uint32_t>(::syscall(SYS_gettid));
  return number;
}

}  // namespace

void open_trace(const Settings& settings) {
  if (settings.trace_path.empty() || is_traced()) return;
  const std::string path = settings.trace_path + "." + std::to_string(::getpid());
  const auto capacity = static_cast<uint64_t>(settings.trace_records);
  const size_t bytes = kTraceHeaderBytes + capacity * sizeof(TraceRecord);
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return warn(path, "cannot create it", errno);
  // Room that is there: a write into a mapped hole of a full disk ends the process.
  if (const int code = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); code != 0) {
    ::unlink(path.c_str());
    return warn(path, "no room for it", code);
  }
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) return warn(path, "cannot map it", errno);
  static TraceFile file;
  file.header = static_cast<TraceHeader*>(memory);
  file.records = reinterpret_cast<TraceRecord*>(static_cast<uint8_t*>(memory) + kTraceHeaderBytes);
  std::memcpy(file.header->magic, "STCPXTR1", sizeof file.header->magic);
  file.header->header_bytes = kTraceHeaderBytes;
  file.header->record_bytes = sizeof(TraceRecord);
  file.header->capacity = capacity;
  file.header->process = static_cast<uint64_t>(::getpid());
  g_trace.store(&file, std::memory_order_release);
}

void write_trace(const TraceFile& file, TraceStep step, const Object& connection, uint64_t message,
                 uint64_t offset, uint64_t bytes, long socket) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t place = file.header->written.fetch_add(1, std::memory_order_relaxed);
  file.records[place % file.header->capacity] = {int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec,
                                                 reinterpret_cast<uint64_t>(&connection),
                                                 offset,
                                                 static_cast<uint32_t>(message),
                                                 static_cast<uint32_t>(bytes),
                                                 static_cast<uint16_t>(step),
                                                 static_cast<uint16_t>(socket),
                                                 this_thread()};
}

}  // namespace softtcpx
