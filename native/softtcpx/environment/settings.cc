#include "softtcpx/environment/settings.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "net/abi_v7.h"
#include "softtcpx/environment/log.h"
#include "softtcpx/environment/socket.h"

namespace softtcpx {
namespace {

struct NumberSetting {
  const char* name;
  int64_t Settings::*field;
  int64_t fallback, least, most;
  const char* reason;
};

struct TrapSetting {
  const char* name;
  int64_t Traps::*field;
  int64_t fallback, most;
  const char* reason;
  int64_t of_tcpx = kAsFallback;  // with SOFTTCPX_LIKE

  static constexpr int64_t kAsFallback = -2;
};

constexpr int64_t kMinute = 60 * 1000;
constexpr int64_t kCopyUnit = 65536;
constexpr int64_t kMostCopyBytes = 64 << 20;
constexpr int64_t kMostCopies = 64;
constexpr int64_t kManyMessages = int64_t{1} << 60;
constexpr char kTcpx[] = "tcpx-3.1.9";
constexpr char kDirect[] = "direct";

constexpr NumberSetting kNumbers[] = {
    {"SOFTTCPX_MAX_SOCKETS", &Settings::max_sockets, 8, 1, kMaxSockets,
     "bound of the product of the two above, and of the workers that the second asks for"},
    {"SOFTTCPX_WORKERS", &Settings::workers, 0, 0, kMaxThreads,
     "workers a device, whatever the sockets of a connection; 0: as NCCL_SOCKET_NTHREADS says"},
    {"SOFTTCPX_HOST_WORKERS", &Settings::host_workers, 0, 0, 1,
     "1: workers by cores in host memory, too, where nobody says how many"},
    {"SOFTTCPX_GPU_PAGES_MIB", &Settings::gpu_pages_mib, 0, 0, 4095,
     "of a GPU's memory, for bounce pages of its own; 0: it reads those of the host"},
    {"NCCL_DYNAMIC_CHUNK_SIZE", &Settings::chunk_bytes, 524288, 0, 1 << 30,
     "largest piece of a message on one socket; 0 means the default"},
    {"SOFTTCPX_SNDBUF", &Settings::send_buffer_bytes, 4 << 20, 0, 1 << 30,
     "bytes a sender may run ahead; smaller ones halve the speed of a stream; 0: the kernel tunes"},
    {"SOFTTCPX_RCVBUF", &Settings::receive_buffer_bytes, 0, 0, 1 << 30,
     "0: the kernel tunes; a fixed size switches its tuning off"},
    {"SOFTTCPX_CONNECT_TIMEOUT_MS", &Settings::connect_timeout_ms, 20000, 1, 60 * kMinute,
     "how long connect tries to reach a listener"},
    {"SOFTTCPX_ANSWER_TIMEOUT_MS", &Settings::answer_timeout_ms, kMinute, 0, 60 * kMinute,
     "how long connect waits for accept once the listener's port took the connection; 0: for ever"},
    {"SOFTTCPX_REPORT_SIZES", &Settings::report_sizes, 0, 0, 1,
     "1: test writes how many bytes a receive has got; TCPX never does"},
    {"SOFTTCPX_DIRECT_SOCKETS", &Settings::direct_sockets, 4, 0, 1 << 20,
     "number of waiting sockets that are tried directly; beyond it epoll tells"},
    {"SOFTTCPX_SPIN_US", &Settings::spin_us, 50, 0, 1000000,
     "how long a worker without work looks for some before it sleeps"},
    {"NCCL_GPUDIRECTTCPX_RECV_SYNC", &Settings::recv_sync, 0, 0, 1,
     "1: a send waits until the receive for it is posted; equal on both sides"},
    {"SOFTTCPX_SHUFFLE", &Settings::shuffle, 1, 0, 1, "1: bounce pages are handed out in no order"},
    {"SOFTTCPX_POISON", &Settings::poison, 0, 0, 1,
     "1: a bounce page is overwritten when it is consumed, so that a late unpack is seen"},
    {"SOFTTCPX_SEED", &Settings::seed, 1, 0, 1 << 30,
     "of the order of pages and of random fragments"},
    {"SOFTTCPX_COPY_BYTES", &Settings::copy_bytes, 524288, kCopyUnit, kMostCopyBytes,
     "most bytes that one copy out of GPU memory has, and then one piece on a socket"},
    {"SOFTTCPX_COPIES", &Settings::copies, 8, 2, kMostCopies,
     "such copies that a sending connection has page-locked memory for"},
    {"SOFTTCPX_STAY_US", &Settings::stay_us, 0, 0, 1000000,
     "how long a kernel that does small copies out of a GPU stays without one; 0: there is none"},
    {"SOFTTCPX_ZERO_COPY", &Settings::zero_copy, 1, 0, 1,
     "1: a worker sends large pieces out of GPU memory from where their copies lie"},
    {"SOFTTCPX_BOUNCE_PAGES", &Settings::bounce_pages, 0, 0, kBouncePages,
     "of a receiving connection; 0: enough for 16 receives of a chunk, and for 8 MiB"},
    {"SOFTTCPX_FLUSH_POLLS", &Settings::flush_polls, 2, 0, kManyMessages,
     "with SOFTTCPX_LIKE=direct: tests of a flush that find it under way; 0: it is done at once"},
    {"SOFTTCPX_MAX_RECVS", &Settings::max_recvs, 8, 1, kMostReceives,
     "with SOFTTCPX_LIKE=direct: receives in one call"},
    {"SOFTTCPX_DMA_BUF", &Settings::dma_buf, 1, 0, 1,
     "with SOFTTCPX_LIKE=direct: 1: dma-bufs are taken where the driver makes some"},
    {"SOFTTCPX_TRACE_RECORDS", &Settings::trace_records, 65536, 1024, 1 << 24,
     "of 40 bytes, that a file of SOFTTCPX_TRACE keeps: the last ones"},
};

// Read as TCPX reads them: C's strtoll, whatever stands behind the number, and a value beyond the
// limits is 1. Only no thread at all is our own: then there are no workers.
constexpr NumberSetting kCounts[] = {
    {"NCCL_NSOCKS_PERTHREAD", &Settings::sockets_per_thread, 1, 1, kMaxSockets,
     "data sockets a thread; one stream is fastest where there are few cores"},
    {"NCCL_SOCKET_NTHREADS", &Settings::threads, 0, 0, kMaxThreads,
     "workers a device; 0: the caller of test does all the work"},
};

// For tests only: each makes softtcpx break a rule or a connection on purpose.
constexpr TrapSetting kTraps[] = {
    {"SOFTTCPX_TRAP_SIZES", &Traps::sizes, 0, 2,
     "what test writes as the size of a receive: 0 as without a trap, 1 the bytes, 2 one byte "
     "more"},
    {"SOFTTCPX_TRAP_OVERSIZE", &Traps::oversize, 0, 1,
     "1: a larger message than the posted receive is written beyond it, as TCPX does"},
    {"SOFTTCPX_TRAP_BUSY_NULL", &Traps::busy_null, 0, kManyMessages,
     "every n-th post is answered by rc 0 and no request"},
    {"SOFTTCPX_TRAP_QUEUE", &Traps::queue, 0, kNetMaxRequests,
     "requests that a connection takes before it answers 3"},
    {"SOFTTCPX_TRAP_ERROR_AT", &Traps::error_at, -1, kManyMessages,
     "message whose test returns SOFTTCPX_TRAP_ERROR_CODE"},
    {"SOFTTCPX_TRAP_ERROR_CODE", &Traps::error_code, 2, 1000, "the code for it"},
    {"SOFTTCPX_TRAP_DELAY", &Traps::delay, 0, kManyMessages,
     "number of tests by which done is late", 1},
    {"SOFTTCPX_TRAP_SLOW_PERCENT", &Traps::slow_percent, 0, 1000,
     "after bytes moved, spins for this share of the time since they last did"},
    {"SOFTTCPX_TRAP_SLOW_US", &Traps::slow_us, 0, 60 * 1000 * kMinute,
     "least number of microseconds between done of a message and of the message before"},
    {"SOFTTCPX_TRAP_LOST_AT", &Traps::lost_at, -1, kManyMessages,
     "message whose end is never told"},
    {"SOFTTCPX_TRAP_CORRUPT_AT", &Traps::corrupt_at, -1, kManyMessages,
     "received message of which the first byte is changed"},
    {"SOFTTCPX_TRAP_DUPLICATE_AT", &Traps::duplicate_at, -1, kManyMessages,
     "received message whose last fragment is listed twice"},
    {"SOFTTCPX_TRAP_REORDER_AT", &Traps::reorder_at, -1, kManyMessages,
     "received message whose fragments are listed backwards"},
    {"SOFTTCPX_TRAP_STOP_AT", &Traps::stop_at, -1, kManyMessages,
     "message after which nothing moves any more"},
    {"SOFTTCPX_TRAP_EXIT_AT", &Traps::exit_at, -1, kManyMessages,
     "message in whose midst the process ends"},
    {"SOFTTCPX_TRAP_LEAK_AT", &Traps::leak_at, -1, kManyMessages,
     "received message of which a bounce page is lost"},
    {"SOFTTCPX_TRAP_ACCEPT_MS", &Traps::accept_ms, 0, 60 * kMinute,
     "how long accept says 'not yet' to a peer that is there"},
    {"SOFTTCPX_TRAP_NO_PEER", &Traps::no_peer, 0, 1, "1: connect never comes to an end"},
    {"SOFTTCPX_TRAP_TRACE", &Traps::trace, 0, 1,
     "1: the last line of a call that fails is a trace, at level INFO, behind the cause", 1},
    {"SOFTTCPX_TRAP_WARN_RECEIVES", &Traps::warn_receives, 0, 1,
     "1: a warning at each attempt to receive into host memory", 1},
    {"SOFTTCPX_TRAP_DEVICE_MEMORY", &Traps::device_memory, 0, 1,
     "1: device block and bounce buffer are in a GPU's memory, which the CPU cannot touch", 1},
    {"SOFTTCPX_TRAP_ACCEPT_LATE_MS", &Traps::accept_late_ms, 0, 60 * kMinute,
     "how long accept says 'not yet' after connect is ready", 50},
    {"SOFTTCPX_TRAP_POLLS", &Traps::polls, 0, kManyMessages,
     "number of tests of a message that find nothing, and move nothing if the caller moves bytes",
     8},
    {"SOFTTCPX_TRAP_LATE_COUNTS", &Traps::late_counts, 0, 1,
     "1: a slot has its last count until the first piece, then 0, and its own only when test says "
     "done",
     1},
    {"SOFTTCPX_TRAP_YOUNGER", &Traps::younger, 0, 1,
     "1: the test of a request that is not the oldest is 'not done' in place of error 3", 1},
    {"SOFTTCPX_TRAP_LOST_PEER", &Traps::lost_peer, 0, 1,
     "1: a broken data socket is a warning and silence; a sender that closed is error 2, then 'not "
     "done', then done",
     1},
    {"SOFTTCPX_TRAP_SHARED_PAGES", &Traps::shared_pages, 0, (1 << 16) - 1,
     "bounce pages that all receiving connections of a GPU share, none set aside for a receive",
     8192},
    {"SOFTTCPX_TRAP_CODES", &Traps::codes, 0, 1,
     "1: error 3 where an argument is invalid; init fails where there is no interface", 1},
    {"SOFTTCPX_TRAP_TAKES_ALL", &Traps::takes_all, 0, 1,
     "1: senseless arguments that TCPX takes are taken", 1},
    {"SOFTTCPX_TRAP_INIT_LINES", &Traps::init_lines, 0, 10000,
     "lines that init logs at least, one of them with a NULL for its text", 40},
    {"SOFTTCPX_TRAP_LONG_PREFIXES", &Traps::long_prefixes, 0, 1,
     "1: a prefix of one letter chooses no interface", 1},
    {"SOFTTCPX_TRAP_NO_MANAGER", &Traps::no_manager, 0, 4,
     "as without the manager of receive rules (1: accept and connect fail with 3), of GPU memory "
     "(2: accept ends the process), or with one that never answers (3; 4: accept waits for that)"},
    {"SOFTTCPX_TRAP_HIDDEN", &Traps::hidden, -1, 1,
     "with SOFTTCPX_LIKE=direct, 1: the last page of what is received into a GPU's memory is there "
     "after iflush; -1: from v9 on, whose properties can ask for that"},
    {"SOFTTCPX_TRAP_RANK", &Traps::rank, -1, 1 << 30,
     "the only rank with traps (as mpirun numbers it); -1: all"},
};

// Of what a plugin that puts data in place has none of: fragments, their pages and their slots.
bool is_of_fragments(const std::string& trap) {
  for (const char* name :
       {"DUPLICATE_AT", "REORDER_AT", "LEAK_AT", "LATE_COUNTS", "SHARED_PAGES", "DEVICE_MEMORY"})
    if (trap == std::string("SOFTTCPX_TRAP_") + name) return true;
  return false;
}

struct TextSetting {
  const char* name;
  std::string Settings::*field;
  const char* fallback;
  const char* reason;
};

constexpr TextSetting kTexts[] = {
    {"SOFTTCPX_CONGESTION", &Settings::congestion, "cubic",
     "bbr paces a local stream down to less than half; 'default' leaves the kernel's own"},
    {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", &Settings::data_interfaces, "",
     "interfaces: prefixes, = exact, ^ not; empty: see the next"},
    {"NCCL_SOCKET_IFNAME", &Settings::socket_interfaces, "",
     "the same, where the one above is not set; empty: all that are up"},
    {"SOFTTCPX_FRAGMENTS", &Settings::fragments_name, "page",
     "page: 4096 bytes each; mss: as in TCP segments; random: any length and alignment"},
    {"SOFTTCPX_TRAP_SIDE", &Settings::trap_side_name, "both",
     "send, recv or both: the connections with traps"},
    {"SOFTTCPX_TRACE", &Settings::trace_path, "",
     "steps of messages are kept in this file, to whose name the process's number is added"},
    {"SOFTTCPX_LIKE", &Settings::like, "",
     "tcpx-3.1.9: the traps that make softtcpx as unkind as that, unless they are set; direct: of "
     "the kind that puts data in place, and flushes"},
};

void describe(Settings& settings, const char* name, const std::string& value, const char* source,
              const char* reason) {
  settings.description.push_back(std::string(name) + "=" + value + " (" + source + "): " + reason);
}

// True when the environment has a usable value.
bool read_number(const char* name, int64_t least, int64_t most, int64_t fallback, int64_t* value) {
  *value = fallback;
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return false;
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text, &end, 10);
  if (errno != 0 || *end != '\0' || parsed < least || parsed > most) {
    SOFTTCPX_WARN("%s=%s is no whole number from %lld to %lld; using %lld", name, text,
                  static_cast<long long>(least), static_cast<long long>(most),
                  static_cast<long long>(fallback));
    return false;
  }
  *value = parsed;
  return true;
}

bool is_set(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0';
}

void load_number(Settings& settings, const NumberSetting& spec) {
  const bool set =
      read_number(spec.name, spec.least, spec.most, spec.fallback, &(settings.*spec.field));
  describe(settings, spec.name, std::to_string(settings.*spec.field),
           set ? "environment" : "default", spec.reason);
}

void load_count(Settings& settings, const NumberSetting& spec, int64_t most) {
  const char* text = std::getenv(spec.name);
  const bool set = text != nullptr && *text != '\0';
  int64_t& value = settings.*spec.field;
  value = set ? std::strtoll(text, nullptr, 0) : spec.fallback;
  if (value < spec.least || value > most) {
    SOFTTCPX_WARN("%s=%s is not from %lld to %lld; using 1, as TCPX does", spec.name, text,
                  static_cast<long long>(spec.least), static_cast<long long>(most));
    value = 1;
  }
  describe(settings, spec.name, std::to_string(value), set ? "environment" : "default",
           spec.reason);
}

// Only what is set is described, and loudly: a trap must not be met by accident.
void load_trap(Settings& settings, const TrapSetting& spec) {
  int64_t& value = settings.traps.*spec.field;
  const bool like = settings.like == kTcpx && spec.of_tcpx != TrapSetting::kAsFallback;
  const int64_t fallback = like ? spec.of_tcpx : spec.fallback;
  if (read_number(spec.name, std::min<int64_t>(spec.fallback, 0), spec.most, fallback, &value)) {
    describe(settings, spec.name, std::to_string(value), "environment", spec.reason);
    const bool direct = settings.like == kDirect;
    if (direct ? is_of_fragments(spec.name) : spec.field == &Traps::hidden)
      SOFTTCPX_WARN("%s=%lld does nothing %s SOFTTCPX_LIKE=direct", spec.name,
                    static_cast<long long>(value), direct ? "with" : "without");
    else
      SOFTTCPX_WARN("a trap is set: %s=%lld", spec.name, static_cast<long long>(value));
  } else if (like) {
    describe(settings, spec.name, std::to_string(value), "SOFTTCPX_LIKE", spec.reason);
  }
}

// The position of a text setting's value in `names`; the first one, with a warning, for any other.
int choose(const char* setting, const std::string& value,
           std::initializer_list<const char*> names) {
  int index = 0;
  for (const char* name : names) {
    if (value == name) return index;
    ++index;
  }
  SOFTTCPX_WARN("%s=%s is unknown; using %s", setting, value.c_str(),
                **names.begin() != '\0' ? *names.begin() : "nothing");
  return 0;
}

void load_text(Settings& settings, const TextSetting& spec) {
  const char* text = std::getenv(spec.name);
  const bool set = text != nullptr && *text != '\0';
  settings.*spec.field = set ? text : spec.fallback;
  describe(settings, spec.name, settings.*spec.field, set ? "environment" : "default", spec.reason);
}

int64_t kernel_limit(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return -1;
  long long value = -1;
  if (std::fscanf(file, "%lld", &value) != 1) value = -1;
  std::fclose(file);
  return value;
}

// A fixed buffer that the kernel cuts down to its limit is worse than its own tuning.
void keep_buffer_if_granted(Settings& settings, int64_t Settings::*field, const char* name,
                            const char* limit_path) {
  const int64_t limit = kernel_limit(limit_path);
  if (settings.*field == 0 || limit < 0 || settings.*field <= limit) return;
  SOFTTCPX_WARN("%s=%lld is above the kernel's limit of %lld (%s); the kernel tunes it instead",
                name, static_cast<long long>(settings.*field), static_cast<long long>(limit),
                limit_path);
  settings.*field = 0;
  describe(settings, name, "0", "kernel limit", "the size asked for is not granted here");
}

void keep_congestion_if_granted(Settings& settings) {
  if (settings.congestion == "default") settings.congestion.clear();
  const Fd probe = open_stream_socket();
  if (!probe.valid()) return;
  if (!settings.congestion.empty() && !set_congestion(probe.get(), settings.congestion)) {
    SOFTTCPX_WARN("the kernel refuses congestion control %s (%s); its own default stays",
                  settings.congestion.c_str(), std::strerror(errno));
    settings.congestion.clear();
  }
  describe(settings, "congestion control in use", congestion_of(probe.get()), "kernel",
           "what a fresh data socket reports");
}

}  // namespace

int socket_count(int64_t sockets_per_thread, int64_t threads, int64_t most) {
  const int64_t groups = std::clamp<int64_t>(threads, 1, most);
  return static_cast<int>(groups * std::min(sockets_per_thread, most / groups));
}

Settings load_settings() {
  Settings settings;
  for (const NumberSetting& spec : kNumbers) load_number(settings, spec);
  load_count(settings, kCounts[0], settings.max_sockets);
  load_count(settings, kCounts[1], kMaxThreads);
  for (const TextSetting& spec : kTexts) load_text(settings, spec);
  if (choose("SOFTTCPX_LIKE", settings.like, {"", kTcpx, kDirect}) == 0) settings.like.clear();
  settings.direct = settings.like == kDirect;
  if (settings.like == kTcpx) SOFTTCPX_WARN("a trap is set: SOFTTCPX_LIKE=%s", kTcpx);
  for (const TrapSetting& spec : kTraps) load_trap(settings, spec);
  settings.fragments = static_cast<Fragments>(
      choose("SOFTTCPX_FRAGMENTS", settings.fragments_name, {"page", "mss", "random"}));
  settings.traps.side = static_cast<TrapSide>(
      choose("SOFTTCPX_TRAP_SIDE", settings.trap_side_name, {"both", "send", "recv"}));
  if (settings.chunk_bytes == 0) {
    settings.chunk_bytes = 524288;
    describe(settings, "NCCL_DYNAMIC_CHUNK_SIZE", "524288", "default", "0 would never move a byte");
  }
  settings.sockets =
      socket_count(settings.sockets_per_thread, settings.threads, settings.max_sockets);
  settings.threads =
      settings.workers > 0 ? settings.workers : std::min(settings.threads, settings.max_sockets);
  // No shorter: bounce pages are counted by that (pages_for).
  settings.copy_bytes -= settings.copy_bytes % kCopyUnit;
  keep_buffer_if_granted(settings, &Settings::send_buffer_bytes, "SOFTTCPX_SNDBUF",
                         "/proc/sys/net/core/wmem_max");
  keep_buffer_if_granted(settings, &Settings::receive_buffer_bytes, "SOFTTCPX_RCVBUF",
                         "/proc/sys/net/core/rmem_max");
  keep_congestion_if_granted(settings);
  describe(settings, "sockets and workers in use",
           std::to_string(settings.sockets) + " and " + std::to_string(settings.threads), "derived",
           "a listener's counts hold for both sides");
  settings.workers_by_cores = !is_set("SOFTTCPX_WORKERS") && !is_set("NCCL_SOCKET_NTHREADS");
  if (settings.workers_by_cores) {
    describe(
        settings, "workers where a GPU is current", "by cores", "default",
        "one for each core that the ranks of this node leave this process, less 2, at most 16");
  }
  return settings;
}

}  // namespace softtcpx
