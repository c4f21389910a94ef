#include "engine/session.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "cuda/gpu.h"
#include "engine/in_place.h"

namespace tcpx {
namespace {

constexpr uint32_t kSpinsBeforeYield = 20;
constexpr uint32_t kSweepsPerLook = 32;            // between two looks at the clock
constexpr int64_t kIdleBeforeSleepNs = 5'000'000;  // a wait this long may cost a sleep's delay

// All sessions of this process. Locked before, never after, the mutex of a session.
std::mutex g_sessions_mutex;
std::vector<Session*> g_sessions;

int index_of(Direction direction) { return direction == Direction::kSend ? 0 : 1; }
int index_of(FlowKind kind) { return kind == FlowKind::kSend ? 0 : 1; }

}  // namespace

Session::Session(Net& net, int device, const TransferLimits& limits, int gpu, UnpackMode unpack,
                 Leftovers* leftovers)
    : net_(net),
      limits_(limits),
      owner_(getpid()),
      gpu_(gpu >= 0 ? &use_gpu(gpu) : nullptr),
      unpacker_(gpu >= 0 ? make_cuda_unpacker(gpu, unpack) : nullptr),
      leftovers_(leftovers),
      connections_(net, device, gpu) {
  check_windows(limits.window_send, limits.window_receive);
  if (limits.chunk_bytes < 1 || limits.chunk_bytes > kMaxChunkBytes || limits.channels < 1) {
    throw std::invalid_argument("bad chunk or channels");
  }
  for (auto& flows : flow_of_) flows.resize(limits.channels, nullptr);
  if (gpu_ != nullptr) {
    NetProperties properties;
    check_call(net.properties(device, &properties), "getProperties", "");
    flushes_ = needs_flush(properties, gpu_->facts);
    dma_buf_ = takes_dma_buf(net, properties, gpu_->facts);
  }
  if (unpacker_) unpacker_->reserve(size_t{kNetMaxRequests} * limits.channels);
  if (limits.alone) return;
  const std::lock_guard<std::mutex> all(g_sessions_mutex);
  g_sessions.push_back(this);
}

Session::~Session() {
  if (getpid() != owner_) static_cast<void>(unpacker_.release());  // as for close()
  try {
    close();
  } catch (const std::exception&) {
    // Nobody is left to be told; close() tells.
  }
}

// --- Set-up
// ---------------------------------------------------------------------------------------

std::array<uint8_t, kNetHandleBytes> Session::listen(int channel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) throw SessionClosed();
  const GpuCurrent current(gpu_);
  return connections_.listen(kUnranked, 0, channel);
}

void Session::add_send(int channel, const uint8_t* handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) throw SessionClosed();
  const GpuCurrent current(gpu_);
  connections_.add_send(kUnranked, 0, channel, handle);
}

void Session::establish(double patience_s, std::optional<Direction> direction,
                        const WaitHook& hook) {
  const int64_t patience_ns = static_cast<int64_t>(patience_s * 1e9);
  int64_t last_progress = now_ns();
  int64_t last_hook = last_progress;
  size_t left = 0, left_before = 0;
  for (;;) {
    const bool moved = progress_all();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (refusal_) std::rethrow_exception(refusal_);
      if (closed_) throw SessionClosed();
      if (connections_.pending(direction) == 0) return connections_.close_listeners();
      left = connections_.pending();
    }
    const int64_t now = now_ns();
    if (left < left_before) last_progress = now;  // other sessions' progress is not this one's
    left_before = left;
    if (now - last_progress > patience_ns) {
      const std::lock_guard<std::mutex> lock(mutex_);
      throw ConnectTimeout(connections_.describe_late(patience_s));
    }
    if (hook && now - last_hook > kWaitHookNs) {
      hook();
      last_hook = now;
    }
    if (!moved) {
      const timespec pause{0, 50'000};  // the peer may need this core to get there
      nanosleep(&pause, nullptr);
    }
  }
}

// What the GPU was told to do reads the plugin's pages and writes to the caller's memory. False
// where it has not ended.
bool Session::end_unpacks() {
  if (!unpacker_) return true;
  unpacker_->flush();
  uint64_t ended = unpacker_->finished();
  int64_t last_progress = now_ns();
  while (ended < unpacker_->last_ticket() && unpacker_->failure().code == 0) {
    sched_yield();
    const int64_t now = now_ns();
    if (now - last_progress > limits_.close_patience_ns) return false;
    if (unpacker_->finished() == ended) continue;
    ended = unpacker_->finished();
    last_progress = now;
  }
  for (MessageFlow& flow : flows_) {
    if (!failed()) flow.finish_in_order(*this);
  }
  return true;
}

void Session::close() {
  // A child of this process has copies of all that belongs to the session, the locks as they were
  // too, and closing would shut connections that its parent uses.
  if (getpid() != owner_) return;
  {
    const std::lock_guard<std::mutex> all(g_sessions_mutex);
    g_sessions.erase(std::remove(g_sessions.begin(), g_sessions.end(), this), g_sessions.end());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return;
  const GpuCurrent current(gpu_);
  closed_ = true;
  if (!end_unpacks()) {  // the plugin may not free what a kernel reads
    check_cuda(kCudaNotReady, "cuStreamQuery",
               "the GPU does not end its unpacks: the connections stay open");
  }
  int refusal = kNetSuccess;
  for (const auto& [id, memory] : memories_) {
    for (const MessageFlow& flow : flows_) {
      for (void* mhandle : memory.mhandles[flow.source.index]) {
        const int code = net_.dereg_mr(flow.comm->comm, mhandle);
        if (refusal == kNetSuccess) refusal = code;
      }
    }
  }
  connections_.close(leftovers_);
  if (refusal != kNetSuccess) throw PluginError("deregMr", refusal, "while closing");
}

// --- Transfers
// ------------------------------------------------------------------------------------

uint64_t Session::create() {
  const std::lock_guard<std::mutex> lock(mutex_);
  transfers_.emplace(next_transfer_, Transfer{});
  return next_transfer_++;
}

void Session::check(const MessagePlace& place) const {
  const auto memory = memories_.find(place.memory);
  if (memory == memories_.end()) throw NoSuchMemory();
  if (place.offset > memory->second.bytes || place.bytes > memory->second.bytes - place.offset) {
    throw std::out_of_range("beyond the end of the memory");
  }
}

void Session::post(uint64_t transfer, Direction direction, const MessagePlace* places,
                   size_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int way = index_of(direction);
  if (closed_) throw SessionClosed();
  find(transfer);
  for (size_t i = 0; i < count; ++i) check(places[i]);
  const auto& flows = flow_of_[way];
  if (std::count(flows.begin(), flows.end(), nullptr) > 0) throw NoConnections();
  for (size_t i = 0; i < count; ++i) register_with(flows, memories_.at(places[i].memory));
  for (size_t i = 0; i < count; ++i) enqueue(transfer, way, places[i]);
  last_progress_[way] = now_ns();
  SetupRound setup;  // a post accepts nobody
  progress(setup);
}

void Session::enqueue(uint64_t transfer, int way, const MessagePlace& place) {
  const uint64_t chunks =
      place.bytes == 0 ? 1 : (place.bytes + limits_.chunk_bytes - 1) / limits_.chunk_bytes;
  const uint64_t number = next_message_[way]++;
  Message& message = messages_[way]
                         .emplace(number, Message{number, transfer, place.memory, place.offset,
                                                  place.bytes, chunks, chunks})
                         .first->second;
  find(transfer).open[way] += chunks;
  ++memories_.at(place.memory).messages;
  const auto& flows = flow_of_[way];
  for (uint64_t chunk = 0; chunk < std::min<uint64_t>(chunks, flows.size()); ++chunk) {
    const uint64_t channel = (next_channel_[way] + chunk) % flows.size();
    flows[channel]->source.queue.push_back({&message, chunk});
  }
  next_channel_[way] = (next_channel_[way] + chunks) % flows.size();
}

void Session::release(uint64_t transfer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Transfer& released = find(transfer);
  released.released = true;
  if (released.open[0] + released.open[1] == 0) transfers_.erase(transfer);
}

TransferState Session::poll(uint64_t transfer) {
  progress_all();
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_of(find(transfer));
}

TransferState Session::look(uint64_t transfer, int64_t* progressed) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Transfer& found = find(transfer);
  if (progressed != nullptr) *progressed = last_progress(found);
  return state_of(found);
}

bool Session::advance(SetupRound& setup) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return progress(setup);
}

bool Session::accept() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return poll_accepts();
}

WaitResult Session::wait(uint64_t transfer, int64_t patience_ns, const WaitHook& hook) {
  const int64_t start = now_ns();
  int64_t last_hook = start;
  int64_t idle_since = start;
  uint32_t idle = 0;
  for (uint32_t sweeps = 1;; ++sweeps) {
    const bool moved = progress_all();
    int64_t progressed = 0;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const Transfer& waited_for = find(transfer);
      const TransferState state = state_of(waited_for);
      if (state == TransferState::kComplete) return WaitResult::kComplete;
      if (state == TransferState::kFailed) return WaitResult::kFailed;
      if (closed_) return WaitResult::kClosed;
      progressed = last_progress(waited_for);
    }
    idle = moved ? 0 : idle + 1;
    if (idle > kSpinsBeforeYield) sched_yield();  // the plugin's threads may need this core
    if (sweeps % kSweepsPerLook != 0) continue;
    const int64_t now = now_ns();
    if (hook && now - last_hook > kWaitHookNs) {
      hook();
      last_hook = now;
    }
    if (now - std::max(progressed, start) > patience_ns) return WaitResult::kStalled;
    if (moved || idle < kSweepsPerLook) {
      idle_since = now;
    } else if (now - idle_since > kIdleBeforeSleepNs) {
      const timespec pause{0, 50'000};
      nanosleep(&pause, nullptr);
    }
  }
}

const Session::Transfer& Session::find(uint64_t transfer) const {
  const auto found = transfers_.find(transfer);
  if (found == transfers_.end() || found->second.released) throw NoSuchTransfer();
  return found->second;
}

Session::Transfer& Session::find(uint64_t transfer) {
  return const_cast<Transfer&>(static_cast<const Session*>(this)->find(transfer));
}

TransferState Session::state_of(const Transfer& transfer) const {
  if (transfer.open[0] + transfer.open[1] == 0) return TransferState::kComplete;
  return failed() ? TransferState::kFailed : TransferState::kActive;
}

// Of the directions in which something is left: others' traffic does not keep a stalled one alive.
int64_t Session::last_progress(const Transfer& transfer) const {
  int64_t last = 0;
  for (int way = 0; way < 2; ++way) {
    if (transfer.open[way] > 0) last = std::max(last, last_progress_[way]);
  }
  return last;
}

// --- Progress
// -------------------------------------------------------------------------------------

// One step of this session and of all others of this process that no other thread is at.
template <typename Step>
bool Session::with_others(const Step& step) {
  bool moved;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    moved = step(*this);
  }
  const std::unique_lock<std::mutex> all(g_sessions_mutex, std::try_to_lock);
  if (!all) return moved;  // another thread is at it
  for (Session* other : g_sessions) {
    if (other == this || other->owner_ != owner_) continue;  // a parent's, in a forked child
    const std::unique_lock<std::mutex> lock(other->mutex_, std::try_to_lock);
    if (lock) moved |= step(*other);
  }
  return moved;
}

bool Session::progress_all() {
  SetupRound setup;
  const bool moved = with_others([&](Session& each) { return each.progress(setup); });
  if (!setup.over()) return moved;
  return with_others([](Session& each) { return each.poll_accepts(); }) || moved;
}

bool Session::poll_accepts() {
  const GpuCurrent current(gpu_);
  return accepts_ && poll_connections(Direction::kReceive);
}

bool Session::poll_connections(Direction direction) {
  if (closed_ || refusal_) return false;
  try {
    const bool moved = connections_.poll(direction);
    if (moved) adopt_comms();
    return moved;
  } catch (const std::exception&) {
    refusal_ = std::current_exception();  // for whoever waits for this session
    return false;
  }
}

bool Session::progress(SetupRound& setup) {
  const GpuCurrent current(gpu_);
  warnings_before_ = plugin_log::warnings();
  bool moved = false;
  if (!closed_ && !refusal_ && connections_.pending() > 0) {
    moved = poll_connections(Direction::kSend);
    setup.accepts |= accepts_ && connections_.pending(Direction::kReceive) > 0;
    setup.begun &= refusal_ || connections_.begun();
  }
  const watch::Round round(heartbeat_);
  for (MessageFlow& flow : flows_) {
    // A comm that failed may have taken others along: no further call.
    if (closed_ || failed()) return false;
    heartbeat_.enter(&flow, watch::InCall::kTest);
    try {
      moved |= flow.advance(*this);
    } catch (...) {  // of the plugin's: nothing of ours throws there
      fault_.kind = FaultKind::kPlugin;
      fault_.call = flow.kind == FlowKind::kSend ? "isend or test, by an exception of C++,"
                                                 : "irecv or test, by an exception of C++,";
      fault_.code = kNetInternalError;
      fault_.direction = flow.kind;
      fault_.channel = flow.channel;
      return false;
    }
  }
  if (!unpacker_) return moved;
  const FlowFault fault = flush_moves(*unpacker_);
  if (fault.kind == FaultKind::kNone) return moved;
  static_cast<FlowFault&>(fault_) = fault;
  return false;
}

uint64_t Session::chunk_bytes(const Message& message, uint64_t chunk) const {
  return std::min(limits_.chunk_bytes, message.bytes - chunk * limits_.chunk_bytes);
}

bool Session::next(const MessageFlow& flow, Chunk<Part>& chunk, Posting& posting) const {
  if (flow.source.queue.empty()) return false;
  const Share& share = flow.source.queue.front();
  const Message& message = *share.message;
  const Memory& memory = memories_.at(message.memory);
  const uint64_t at = message.offset + share.next * limits_.chunk_bytes;
  const auto& regions = memory.mhandles[flow.source.index];
  posting.mhandle = regions[std::min<size_t>(at >> kRegionShift, regions.size() - 1)];
  chunk.data = memory.data + at;
  chunk.bytes = static_cast<uint32_t>(chunk_bytes(message, share.next));
  chunk.scattered = memory.type == kNetPtrCuda && flow.queue != nullptr;
  chunk.flushes =
      flushes_ && flow.kind == FlowKind::kReceive && memory.type == kNetPtrCuda && chunk.bytes > 0;
  chunk.part = {share.message, share.next};
  return true;
}

void Session::took(MessageFlow& flow, const Chunk<Part>& chunk) {
  Share& share = flow.source.queue.front();
  share.next += limits_.channels;
  if (share.next >= share.message->chunks) flow.source.queue.pop_front();
  last_progress_[index_of(flow.kind)] = chunk.posted_at;
}

void Session::finished(const MessageFlow& flow, const Chunk<Part>& chunk) {
  const int way = index_of(flow.kind);
  last_progress_[way] = now_ns();
  Message& message = *chunk.part.message;
  const auto owner = transfers_.find(message.transfer);
  if (--owner->second.open[way] == 0 && owner->second.released &&
      owner->second.open[1 - way] == 0) {
    transfers_.erase(owner);
  }
  if (--message.open == 0) {
    --memories_.at(message.memory).messages;
    messages_[way].erase(message.number);
  }
}

}  // namespace tcpx
