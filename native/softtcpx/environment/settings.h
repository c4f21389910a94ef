// What softtcpx reads from the environment: once, at init, each setting declared in one table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/abi.h"

namespace softtcpx {

constexpr int kMaxSockets = 16;                              // data sockets of one connection
constexpr int kMostReceives = 8;                             // in one call
constexpr int kMaxThreads = 16;                              // workers of one device
constexpr uint32_t kMaxFragments = kNetUnpackFragments - 1;  // of one receive
constexpr uint32_t kBouncePages = kNetUnpackSlots * kMaxFragments;  // of one connection

// How a receive into GPU memory is cut into fragments.
enum class Fragments {
  kPages,     // 4096 bytes each
  kSegments,  // 4096 + 4096 + 856, as the pages of a large TCP segment
  kRandom,    // any length, anywhere in its page
};

enum class TrapSide { kBoth, kSend, kReceive };

// Faults on purpose; message numbers count from 0, -1 is none. See traps.h.
struct Traps {
  int64_t sizes = 0;
  int64_t oversize = 0;
  int64_t busy_null = 0;
  int64_t queue = 0;
  int64_t error_at = -1;
  int64_t error_code = 0;
  int64_t delay = 0;
  int64_t slow_percent = 0;
  int64_t slow_us = 0;
  int64_t lost_at = -1;
  int64_t corrupt_at = -1;
  int64_t duplicate_at = -1;
  int64_t reorder_at = -1;
  int64_t stop_at = -1;
  int64_t exit_at = -1;
  int64_t leak_at = -1;
  int64_t accept_ms = 0;
  int64_t no_peer = 0;
  // As unkind as TCPX.
  int64_t trace = 0;
  int64_t warn_receives = 0;
  int64_t device_memory = 0;
  int64_t accept_late_ms = 0;
  int64_t polls = 0;
  int64_t late_counts = 0;
  int64_t younger = 0;
  int64_t lost_peer = 0;
  int64_t shared_pages = 0;
  int64_t codes = 0;
  int64_t takes_all = 0;
  int64_t init_lines = 0;
  int64_t long_prefixes = 0;
  int64_t no_manager = 0;
  int64_t hidden = -1;  // -1: as its version's properties can say
  int64_t rank = -1;
  TrapSide side = TrapSide::kBoth;
};

struct Settings {
  // As the environment asks for them.
  int64_t sockets_per_thread = 0;
  int64_t threads = 0;
  int64_t max_sockets = 0;
  int64_t workers = 0;
  int64_t host_workers = 0;
  int64_t chunk_bytes = 0;
  int64_t send_buffer_bytes = 0;     // 0: the kernel tunes it
  int64_t receive_buffer_bytes = 0;  // 0: the kernel tunes it
  int64_t connect_timeout_ms = 0;
  int64_t answer_timeout_ms = 0;  // 0: for ever
  int64_t report_sizes = 0;       // 1: test writes the size of a receive, as TCPX never does
  int64_t direct_sockets = 0;
  int64_t spin_us = 0;
  int64_t recv_sync = 0;
  int64_t shuffle = 0;
  int64_t poison = 0;
  int64_t seed = 0;
  int64_t copy_bytes = 0;     // of GPU memory, in one copy
  int64_t zero_copy = 0;      // pieces out of GPU memory are sent from where they lie
  int64_t gpu_pages_mib = 0;  // of a GPU's memory, for bounce pages; 0: it reads them in the host's
  int64_t stay_us = 0;  // of a kernel for small copies out of a GPU, without one; 0: there is none
  int64_t copies = 0;   // under way or landed, a sending connection
  int64_t bounce_pages = 0;  // of a receiving connection; 0: as the chunk size needs
  int64_t flush_polls = 0;
  int64_t max_recvs = 1;
  int64_t dma_buf = 0;
  std::string fragments_name;
  std::string trap_side_name;
  std::string like;        // whose ways the traps below have where they are not set
  bool direct = false;     // of the kind that puts data in place, whatever memory that is
  std::string congestion;  // empty: the kernel's own default
  std::string data_interfaces;
  std::string socket_interfaces;
  std::string trace_path;     // empty: nothing is traced
  int64_t trace_records = 0;  // that its file has room for

  Traps traps;

  // What follows from them.
  Fragments fragments = Fragments::kPages;
  int sockets = 1;  // data sockets of a connection that this side listens for
  // Nobody says how many workers there are: connections of a GPU have what the cores allow.
  bool workers_by_cores = false;

  // One line a setting for the log: name, value, source, reason.
  std::vector<std::string> description;
};

// How many data sockets a listener asks for, by the rule of TCPX: the product, and where that is
// above `most`, as many a thread as that has for each. Where TCPX has none, more threads than
// `most`, there is one each for as many threads as that.
int socket_count(int64_t sockets_per_thread, int64_t threads, int64_t most);

// Reads the environment and asks the kernel which of the socket options it grants. A value that is
// no number or out of range is reported by a warning, and the default is used in its place.
Settings load_settings();

}  // namespace softtcpx
