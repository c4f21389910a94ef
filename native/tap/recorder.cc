#include "tap/recorder.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "proof/blake2s.h"

namespace tap {
namespace {

using std::chrono::milliseconds;

// A ring of 65,536 records that is full in this time has 6 million a second of one thread.
constexpr milliseconds kPeriod{10};
constexpr uint64_t kMostRingRecords = 1 << 22;
constexpr uint64_t kClockPeriodNs = 100'000'000, kSlowPeriodNs = 1'000'000'000;
constexpr uint64_t kRings = 16;
constexpr int kMostLines = 4;  // of a stall
constexpr double kNotPolledNs = 1e9;

// Lines of the log by where they come from: a reader of it may show but a few of each.
enum Place { kOfFile = 2, kOfLosses = 3, kOfSlow = 4, kOfStalls = 10, kOfComms = 100 };

std::atomic<bool> g_asked{false};
struct sigaction g_before {};

// Whoever had the signal before has it, too.
void on_signal(int number, siginfo_t* info, void* context) {
  g_asked.store(true, std::memory_order_relaxed);
  if ((g_before.sa_flags & SA_SIGINFO) != 0)
    g_before.sa_sigaction(number, info, context);
  else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN)
    g_before.sa_handler(number);
}

void take_signal() {
  struct sigaction mine {};
  mine.sa_sigaction = on_signal;
  mine.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  if (sigaction(SIGUSR1, nullptr, &g_before) != 0 || g_before.sa_handler == SIG_IGN) return;
  sigaction(SIGUSR1, &mine, nullptr);
}

void give_signal_back() {
  struct sigaction now {};
  if (sigaction(SIGUSR1, nullptr, &now) == 0 && now.sa_sigaction == on_signal)
    sigaction(SIGUSR1, &g_before, nullptr);
}

ClockPair clock_pair() {
  return {ticks(), read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_REALTIME)};
}

// The largest power of two of records of which 16 rings have room in the memory.
uint64_t ring_records(uint64_t memory) {
  uint64_t records = kMostRingRecords;
  while (records * sizeof(Record) * kRings > memory) records /= 2;
  return records;
}

// As JSON has it; a byte that is no letter of ASCII stands for itself.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= ' ' && byte < 0x7f && letter != '"' && letter != '\\') {
      out += letter;
      continue;
    }
    char escaped[8];
    snprintf(escaped, sizeof escaped, "\\u%04x", byte);
    out += escaped;
  }
  return out + '"';
}

std::string field(const char* name, const std::string& text) {
  return quoted(name) + ":" + quoted(text);
}
template <class Number>
std::string number(const char* name, Number value) {
  return quoted(name) + ":" + std::to_string(value);
}
template <class... Fields>
std::string object(const std::string& first, const Fields&... rest) {
  std::string text = "{" + first;
  (text.append("," + rest), ...);
  return text + "}\n";
}

std::string seconds_text(double ns) {
  char text[32];
  snprintf(text, sizeof text, "%.1f s", ns / 1e9);
  return text;
}

}  // namespace

void say(NetLogger logger, int level, int place, const std::string& line) {
  if (logger != nullptr) logger(level, ~0ul, "tap", place, "tcpx-mpi tap: %s", line.c_str());
}

thread_local Recorder::Own Recorder::own_{};
std::atomic<uint64_t> Recorder::lives_{0};

HandleHash hash_of_handle(const void* handle) {
  HandleHash hash;
  tcpx::blake2s(hash.bytes, sizeof hash.bytes, nullptr, 0, handle, kNetHandleBytes);
  return hash;
}

std::string text_of(const HandleHash& hash) {
  char text[2 * sizeof hash.bytes + 1];
  for (size_t i = 0; i < sizeof hash.bytes; ++i) snprintf(text + 2 * i, 3, "%02x", hash.bytes[i]);
  return text;
}

Recorder::Recorder(const Settings& settings, NetLogger logger, int abi,
                   const std::string& plugin_path, const std::string& plugin_name)
    : settings_(settings),
      logger_(logger),
      began_(clock_pair()),
      ring_records_(ring_records(settings.memory_bytes)),
      moved_(began_.ticks) {
  pthread_key_create(&key_, thread_ended);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!settings.folder.empty()) {
    file_ = std::make_unique<File>(settings.folder, settings.file_bytes, abi);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    write_clock();
    write_lines(object(number("process", getpid()), number("rank", rank_here()),
                       number("ranks", ranks_here()), field("host", host), number("abi", abi),
                       field("plugin", plugin_name), field("path", plugin_path)));
  }
  take_signal();
  thread_ = std::thread([this] { run(); });
}

void Recorder::stop(bool quiet) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
    quiet_ = quiet_ || quiet;
    wakes_.notify_all();
  }
  thread_.join();
  give_signal_back();
  pthread_key_delete(key_);
  const std::lock_guard<std::mutex> lock(mutex_);
  drain();
  say_summary(kNetLogInfo);
  if (file_ == nullptr) return;
  file_->begin_last_words();
  write_clock();
  write_lines(object(number("lost", lost()), number("unseen", unseen_.load())));
  file_.reset();
}

Recorder::~Recorder() {
  for (const auto& [memory, bytes] : mapped_) munmap(memory, bytes);
}

// --- For each request ----------------------------------------------------------------------------

void Recorder::posted(Comm& comm, const void* pointer, uint64_t bytes, uint64_t before,
                      uint64_t after, Kind kind, int tag, int parts) {
  const uint32_t number = comm.posted;
  const float plugin = span(before, after);
  if (parts == 1 || kind == kFlush)
    note(comm, {kind, 0, 1, 0, comm.number, number, tag, before, bytes, plugin, 0});
  comm.posted = number + 1;
  // What nobody asks for is not waited for.
  Request* request = pointer == reinterpret_cast<void*>(1) ? nullptr : requests_.begin(pointer);
  if (request == nullptr) {
    unseen_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  request->pointer = pointer;
  request->comm = &comm;
  request->posted = before;
  request->polled = after;
  request->bytes = bytes;
  request->count = {number, 0};
  request->sort = {plugin, kind, static_cast<uint8_t>(parts), 0};
}

void Recorder::part(Comm& comm, uint32_t number, int part, int parts, uint64_t bytes, int tag,
                    uint64_t at) {
  note(comm, {kReceive, static_cast<uint8_t>(part), static_cast<uint8_t>(parts), 0, comm.number,
              number, tag, at, bytes, 0, 0});
}

void Recorder::refused(Comm& comm, int code, uint64_t before, uint64_t after) {
  note(comm, {kError, 0, 1, static_cast<uint8_t>(code), comm.number, comm.posted, 0, after, 0,
              span(before, after), 0});
}

Ring* Recorder::own_ring(Comm& comm) {
  Ring* ring = own_.life == life_ ? own_.ring : make_ring();
  comm.ring = ring;
  return ring;
}

Ring* Recorder::make_ring() {
  const std::lock_guard<std::mutex> lock(mutex_);
  own_ = {life_, nullptr};
  for (const auto& ring : rings_) {
    if (ring->owner.load(std::memory_order_acquire) != 0 || !ring->empty()) continue;
    own_.ring = ring.get();
    break;
  }
  const size_t bytes = ring_records_ * sizeof(Record);
  if (own_.ring == nullptr && (rings_.size() + 1) * bytes <= settings_.memory_bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    mapped_.emplace_back(memory, bytes);
    rings_.push_back(std::make_unique<Ring>(static_cast<Record*>(memory), ring_records_,
                                            static_cast<uint32_t>(rings_.size())));
    own_.ring = rings_.back().get();
  }
  if (own_.ring != nullptr) own_.ring->owner.store(this_thread(), std::memory_order_relaxed);
  pthread_setspecific(key_, own_.ring);
  return own_.ring;
}

void Recorder::thread_ended(void* ring) {
  static_cast<Ring*>(ring)->owner.store(0, std::memory_order_release);
}

uint64_t Recorder::sum(const int* sizes, int parts) {
  uint64_t bytes = 0;
  for (int i = 0; i < parts; ++i) bytes += sizes[i] > 0 ? static_cast<uint64_t>(sizes[i]) : 0;
  return bytes;
}

// --- At set-up and at the end --------------------------------------------------------------------

void Recorder::device(int device, const char* name, const char* pci_path, int speed_mbps) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string& known = devices_[device];
  if (!known.empty()) return;
  known = name != nullptr && name[0] != '\0' ? name : "device " + std::to_string(device);
  write_lines(object(number("device", device), field("name", known),
                     field("pci_path", pci_path != nullptr ? pci_path : ""),
                     number("speed_mbps", speed_mbps)));
}

void Recorder::opened(const void* pointer, bool sends, int device, const HandleHash& handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_comms_.empty()) free_comms_.push_back(&kept_comms_.emplace_back());
  Comm* comm = free_comms_.back();
  if (!comms_.insert(pointer, comm)) {
    unseen_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  free_comms_.pop_back();
  comm->number = next_comm_++;
  comm->posted = comm->done = 0;
  comm->sends = sends;
  const auto nic = devices_.find(device);
  const std::string side = sends ? "send" : "receive";
  told_[comm->number] = {pointer,
                         sends,
                         "comm " + std::to_string(comm->number) + " (" + side + "s, " +
                             (nic != devices_.end() ? nic->second : std::to_string(device)) +
                             ", handle " + text_of(handle) + ")",
                         {}};
  write_lines(object(number("comm", +comm->number), field("side", side), number("device", device),
                     field("handle", text_of(handle)), number("ticks", ticks())));
}

void Recorder::closing(const void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Comm* comm = comms_.remove(pointer);
  if (comm == nullptr) return;
  if (comm->posted != comm->done) {
    requests_.each([&](Request& request, uint32_t life) {
      if (request.comm == comm) Requests::end(request, life);
    });
  }
  drain();
  const auto told = told_.find(comm->number);
  if (told->second.tally.requests() > 0)
    say(kNetLogInfo, kOfComms + static_cast<int>(comm->number),
        told->second.text + ": " + told->second.tally.text());
  write_lines(object(number("closed", +comm->number), number("ticks", ticks())));
  told_.erase(told);
  free_comms_.push_back(comm);
}

std::string Recorder::where() const {
  return file_ != nullptr && file_->is_open() ? ", notes them in " + file_->path() : "";
}

void Recorder::say(int level, int place, const std::string& line) {
  if (file_ != nullptr && level == kNetLogWarn) write_lines(object(field("said", line)));
  if (!quiet_) tap::say(logger_, level, place, line);
}

// --- The thread of its own -----------------------------------------------------------------------

void Recorder::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stops_) {
    drain();
    look_for_stall();
    if (g_asked.exchange(false)) say_summary(kNetLogWarn);
    wakes_.wait_for(lock, kPeriod, [&] { return stops_; });
  }
}

void Recorder::write_lines(const std::string& lines) {
  if (file_ != nullptr) file_->write(kLines, 0, lines.data(), lines.size());
}

void Recorder::write_clock() {
  const ClockPair pair = clock_pair();
  if (file_ != nullptr) file_->write(kClock, 0, &pair, sizeof pair);
}

void Recorder::drain() {
  const ClockPair now = clock_pair();
  if (now.ticks > began_.ticks)
    ns_a_tick_ = static_cast<double>(now.monotonic_ns - began_.monotonic_ns) /
                 static_cast<double>(now.ticks - began_.ticks);
  bool any = false;
  for (const auto& ring : rings_) {
    ring->take([&](const Record* records, uint64_t n) {
      any = true;
      if (file_ != nullptr && !file_->write(kRecords, ring->thread, records, n * sizeof(Record)))
        unwritten_ += n;
      count(records, n);
    });
  }
  const auto now_ns = static_cast<uint64_t>(now.monotonic_ns);
  if (any && now_ns >= next_clock_ && file_ != nullptr && !file_->full()) {
    write_clock();
    next_clock_ = now_ns + kClockPeriodNs;
  }
  if (!slow_.empty() && now_ns >= next_slow_) {
    const std::string more = slow_held_ > 0 ? "; " + std::to_string(slow_held_) + " more" : "";
    say(kNetLogWarn, kOfSlow, slow_.front() + more);
    slow_.clear();
    slow_held_ = 0;
    next_slow_ = now_ns + kSlowPeriodNs;
  }
  say_if_lossy();
}

void Recorder::count(const Record* records, uint64_t count) {
  uint32_t last = ~0u;
  Tally* tally = nullptr;
  for (const Record* record = records; record != records + count; ++record) {
    if (record->comm != last) {
      const auto told = told_.find(record->comm);
      tally = told != told_.end() ? &told->second.tally : nullptr;
      last = record->comm;
    }
    if (tally != nullptr) tally->add(*record, ns_a_tick_);
    if (record->kind != kDone) continue;
    moved_ = std::max(moved_, record->ticks);
    const double took_ns = record->took * ns_a_tick_;
    if (settings_.slow_us > 0 && took_ns > settings_.slow_us * 1000) note_slow(*record, took_ns);
  }
}

void Recorder::note_slow(const Record& record, double took_ns) {
  if (!slow_.empty()) {
    ++slow_held_;
    return;
  }
  const auto told = told_.find(record.comm);
  const double began = static_cast<double>(record.ticks - began_.ticks) * ns_a_tick_ - took_ns;
  slow_.push_back(
      "rank " + std::to_string(rank_here()) +
      ": slow: " + (told != told_.end() ? told->second.text : std::to_string(record.comm)) +
      ": request " + std::to_string(record.request) + " of " + std::to_string(record.bytes) +
      " bytes, posted " + seconds_text(began) + " after init, done after " + time_text(took_ns) +
      ", " + std::to_string(record.word) + " polls, " + time_text(record.plugin * ns_a_tick_) +
      " of it within the plugin's calls");
}

void Recorder::look_for_stall() {
  if (settings_.stall_s <= 0) return;
  const uint64_t now = ticks();
  const auto age_ns = [&](uint64_t at) {
    return at < now ? static_cast<double>(now - at) * ns_a_tick_ : 0;
  };
  const double limit_ns = settings_.stall_s * 1e9;
  if (age_ns(moved_) < limit_ns) {
    said_stall_ = false;
    return;
  }
  if (said_stall_) return;
  std::unordered_map<uint32_t, Oldest> oldest;
  requests_.each([&](const Request& request, uint32_t) {
    const Comm* comm = request.comm;
    if (comm == nullptr) return;
    Oldest& found =
        oldest.try_emplace(comm->number, Oldest{&request, request.posted, 0}).first->second;
    if (request.posted < found.posted) found.request = &request, found.posted = request.posted;
    ++found.under_way;
  });
  // Nothing that is under way has been so for long enough.
  const bool old = std::any_of(oldest.begin(), oldest.end(), [&](const auto& each) {
    return age_ns(each.second.posted) >= limit_ns;
  });
  if (!old) return;
  said_stall_ = true;
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (const auto& [comm, found] : oldest) order.emplace_back(found.posted, comm);
  std::sort(order.begin(), order.end());
  say(kNetLogWarn, kOfStalls,
      "rank " + std::to_string(rank_here()) + ": nothing has moved for " +
          seconds_text(age_ns(moved_)) + ", requests are under way on " +
          std::to_string(order.size()) + " comms, the oldest first");
  for (size_t i = 0; i < order.size() && i < kMostLines; ++i) {
    const auto& [request, posted, under_way] = oldest[order[i].second];
    const auto told = told_.find(order[i].second);
    if (told == told_.end()) continue;
    const double polled = age_ns(request->polled);
    const Count count = request->count;
    const bool waits = polled > kNotPolledNs;
    say(kNetLogWarn, kOfStalls + 1 + static_cast<int>(i),
        told->second.text + ": request " + std::to_string(count.number) + " of " +
            std::to_string(request->bytes) + " bytes, posted " + seconds_text(age_ns(posted)) +
            " ago, " + std::to_string(under_way) + " under way, " + std::to_string(count.polls) +
            " polls, the last " + seconds_text(polled) + " ago: " +
            (waits ? "the caller's turn, who does not poll"
                   : "the turn of the plugin or of its peer"));
  }
}

void Recorder::say_summary(int level) {
  std::vector<std::pair<uint32_t, const Told*>> order;
  for (const auto& [comm, told] : told_) {
    if (told.tally.requests() > 0) order.emplace_back(comm, &told);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [comm, told] : order)
    say(level, kOfComms + static_cast<int>(comm), told->text + ": " + told->tally.text());
}

uint64_t Recorder::lost() const {
  uint64_t count = ringless_ + unwritten_;
  for (const auto& ring : rings_) count += ring->lost;
  return count;
}

void Recorder::say_if_lossy() {
  if (file_ != nullptr && !said_file_ && (!file_->problem().empty() || file_->full())) {
    said_file_ = true;
    say(kNetLogWarn, kOfFile,
        file_->problem().empty()
            ? file_->path() + " has TCPX_TAP_FILES bytes: what follows is counted only"
            : "nothing more is written down: " + file_->problem());
  }
  const uint64_t count = lost() - unwritten_;
  if (said_lossy_ || count == 0) return;
  said_lossy_ = true;
  say(kNetLogWarn, kOfLosses,
      "records are dropped, " + std::to_string(count) +
          " so far: raise TCPX_TAP_MEMORY; the file says at its end how many");
}

}  // namespace tap
