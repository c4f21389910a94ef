// What the calls of a process come to: records in a ring a thread, and a thread of its own that
// writes them down, counts them and says what stands out.
//
// posted() and tested() are called for each request: they take no lock, allocate nothing and make
// no system call, but for a thread's first, which makes its ring.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "net/abi.h"
#include "tap/file.h"
#include "tap/ring.h"
#include "tap/settings.h"
#include "tap/tally.h"
#include "tap/ticks.h"
#include "tap/under_way.h"

namespace tap {

// A handle that listen made, as both ends know it: a hash, since a handle may hold a secret.
struct HandleHash {
  uint8_t bytes[8];
};
HandleHash hash_of_handle(const void* handle);
std::string text_of(const HandleHash& hash);

// A call of test, and its request as it was before: when the plugin has done it, it may hand out
// its pointer anew, in another thread.
struct Poll {
  explicit Poll(const Request& request)
      : life(request.life.load(std::memory_order_relaxed)),
        comm(request.comm),
        posted(request.posted),
        bytes(request.bytes),
        count(request.count),
        sort(request.sort),
        before(ticks()) {}
  const uint32_t life;
  Comm* const comm;
  const uint64_t posted, bytes;
  const Count count;  // without this one
  const Sort sort;
  const uint64_t before;
};

// `place`: in the source, as the log has it.
void say(NetLogger logger, int level, int place, const std::string& line);

class Recorder {
 public:
  Recorder(const Settings& settings, NetLogger logger, int abi, const std::string& plugin_path,
           const std::string& plugin_name);
  // Writes down what is left. `quiet`: the caller's logger may be gone.
  void stop(bool quiet);
  ~Recorder();

  // --- For each request ---
  Comm* comm_of(const void* comm) const { return comms_.find(comm); }
  Request* request_of(const void* request) const { return requests_.find(request); }
  // The plugin made `request`, between these ticks. Of several parts, whose bytes are those of all,
  // part() of each follows.
  void posted(Comm& comm, const void* request, uint64_t bytes, uint64_t before, uint64_t after,
              Kind kind, int tag, int parts);
  void part(Comm& comm, uint32_t number, int part, int parts, uint64_t bytes, int tag, uint64_t at);
  void refused(Comm& comm, int code, uint64_t before, uint64_t after);  // a post
  void tested(Request& request, const Poll& poll, int code, bool done, const int* sizes);

  // --- At set-up and at the end; with locks ---
  void device(int device, const char* name, const char* pci_path, int speed_mbps);
  void opened(const void* comm, bool sends, int device, const HandleHash& handle);
  void closing(const void* comm);
  std::string where() const;  // ", notes them in FILE"
  // A line for whoever reads the log, and for the file.
  void say(int level, int place, const std::string& line);

 private:
  struct Told {  // of an open comm
    const void* pointer;
    bool sends;
    std::string text;  // "comm 3 (sends, eth1, handle 0123456789abcdef)"
    Tally tally;
  };
  struct Oldest {
    const Request* request;
    uint64_t posted, under_way;
  };

  void note(Comm& comm, const Record& record) {
    Ring* ring = comm.ring;
    if (__builtin_expect(
            ring == nullptr || ring->owner.load(std::memory_order_relaxed) != this_thread(), false))
      ring = own_ring(comm);
    if (__builtin_expect(ring != nullptr, true)) return ring->put(record);
    ringless_.fetch_add(1, std::memory_order_relaxed);
  }
  __attribute__((cold)) Ring* own_ring(Comm& comm);
  static uint64_t sum(const int* sizes, int parts);
  Ring* make_ring();
  static void thread_ended(void* ring);

  void write_lines(const std::string& lines);
  void write_clock();
  void drain();  // with mutex_ held, as what follows
  void count(const Record* records, uint64_t count);
  void note_slow(const Record& record, double took_ns);
  void look_for_stall();
  void say_summary(int level);
  void say_if_lossy();
  uint64_t lost() const;
  void run();

  struct Own {
    uint64_t life;
    Ring* ring;
  };
  static thread_local Own own_;
  static std::atomic<uint64_t> lives_;

  const uint64_t life_ = ++lives_;
  const Settings settings_;
  const NetLogger logger_;
  const ClockPair began_;
  const uint64_t ring_records_;
  double ns_a_tick_ = 1;
  pthread_key_t key_{};
  Comms comms_;
  Requests requests_;
  std::atomic<uint64_t> ringless_{0}, unseen_{0};

  std::mutex mutex_;
  std::condition_variable wakes_;
  bool stops_ = false, quiet_ = false, said_lossy_ = false, said_file_ = false, said_stall_ = false;
  std::unique_ptr<File> file_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::vector<std::pair<void*, size_t>> mapped_;
  std::deque<Comm> kept_comms_;  // a late test may still look at one
  std::vector<Comm*> free_comms_;
  std::unordered_map<uint32_t, Told> told_;
  std::unordered_map<int, std::string> devices_;
  uint32_t next_comm_ = 0;
  uint64_t unwritten_ = 0, moved_ = 0;  // ticks of the last request that was done
  uint64_t next_slow_ = 0, slow_held_ = 0, next_clock_ = 0;
  std::vector<std::string> slow_;
  std::thread thread_;
};

inline void Recorder::tested(Request& request, const Poll& poll, int code, bool done,
                             const int* sizes) {
  const uint64_t after = ticks();
  const uint32_t polls = poll.count.polls + 1;
  Sort sort = poll.sort;
  sort.plugin += span(poll.before, after);
  if (!done) {
    sort.code = static_cast<uint8_t>(code);
    request.count = {poll.count.number, polls};
    request.sort = sort;
    request.polled = after;
    if (code == kNetSuccess || code == poll.sort.code) return;
  }
  // A caller does not set those of sends before.
  const bool sized = done && sizes != nullptr && sort.kind == kReceive;
  uint64_t bytes = !sized ? 0 : sort.parts == 1 ? std::max(sizes[0], 0) : sum(sizes, sort.parts);
  note(*poll.comm, {done ? kDone : kError, 0, sort.parts, static_cast<uint8_t>(code),
                    poll.comm->number, poll.count.number, static_cast<int32_t>(polls), after,
                    bytes > 0 ? bytes : poll.bytes, sort.plugin, span(poll.posted, after)});
  if (!done) return;
  poll.comm->done = poll.comm->done + 1;
  Requests::end(request, poll.life);
}

}  // namespace tap
