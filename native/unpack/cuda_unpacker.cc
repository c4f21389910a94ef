#include "unpack/cuda_unpacker.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "cuda/gpu.h"

namespace tcpx {
namespace {

constexpr size_t kLine = 128;                      // bytes between two tickets
constexpr size_t kStagingBytes = size_t{2} << 20;  // the largest request
constexpr size_t kLeadBytes = size_t{32} << 20;    // some 10 us
// Of warps of a block. An H200's memory is busiest with these (bench_unpack_cuda).
constexpr unsigned kWarps = 8;
constexpr unsigned kWarpsOfPages = 16;
constexpr std::chrono::seconds kLastWork{2};  // for what is under way at the end
// Of receives at a time: a kernel that stays does one after the other, a launch all together.
constexpr uint64_t kMostStaying = 4;
constexpr uint32_t kPollsPerLook = 1 << 16;  // without an end, until the driver is asked for errors

uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace

CudaUnpacker::CudaUnpacker(int gpu, UnpackMode mode)
    : gpu_(use_gpu(gpu)),
      mode_(mode == UnpackMode::kStaying ? UnpackMode::kKernel : mode),
      kernels_(gpu_.kernels()),
      reducer_(gpu_),
      tickets_seen_(std::make_unique<PinnedMemory>(gpu_, kLaunchSlots * kLine)) {
  const GpuCurrent current(&gpu_);
  if (mode == UnpackMode::kStaying) staying_ = std::make_unique<StayingUnpacker>(gpu_);
  for (size_t i = 0; i < kLaunchSlots; ++i) {
    slots_.push_back(std::make_unique<LaunchSlot>(gpu_));
    const GpuMemory& counter = slots_.back()->blocks_done;  // zero before its stream's first kernel
    check_cuda(
        cuda().set8_async(counter.address(), 0, counter.bytes(), slots_.back()->stream.handle()),
        "cuMemsetD8Async");
    if (mode_ == UnpackMode::kHost) {
      slots_.back()->staging = std::make_unique<PinnedMemory>(gpu_, kStagingBytes);
    }
  }
}

CudaUnpacker::~CudaUnpacker() {
  const GpuCurrent current(gpu_, std::nothrow);
  const auto deadline = std::chrono::steady_clock::now() + kLastWork;
  while (!idle() && std::chrono::steady_clock::now() < deadline) sched_yield();
  if (idle()) {
    drop_timers();
    return;
  }
  // A GPU that is stuck may still write there, and the driver waits for it whatever is freed.
  static std::mutex mutex;
  static auto* const left = new std::vector<Left>;
  const std::lock_guard<std::mutex> lock(mutex);
  left->push_back(
      {std::move(tickets_seen_), std::move(slots_), std::move(lead_), std::move(staying_)});
}

// A stream that has failed does no more either.
bool CudaUnpacker::idle() const {
  if (staying_ != nullptr && cuda().stream_query(staying_->stream()) == kCudaNotReady) return false;
  return std::none_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return cuda().stream_query(slot->stream.handle()) == kCudaNotReady;
  });
}

void CudaUnpacker::reserve(size_t requests) {
  if (launches_.size() >= requests || launched_ != ended_) return;
  launches_.resize(requests);
  launched_ = ended_ = 0;
}

bool CudaUnpacker::ok(int code, const char* call) {
  if (code != 0 && failure_.code == 0) failure_ = {call, code};
  return failure_.code == 0;
}

UnpackResult CudaUnpacker::submit(const UnpackSource& source, uint8_t* destination,
                                  uint64_t posted) {
  // Descriptors lie in page-locked host memory: looked at here, and no kernel writes astray.
  const UnpackResult result = unpack_bounds(source, posted);
  if (!result.in_bounds) return result;
  begin_request();
  switch (mode_) {
    case UnpackMode::kKernel:
      arguments_.item[unlaunched_] = {address(source.fragments),
                                      static_cast<unsigned>(source.count), address(source.bounce),
                                      address(destination)};
      fragments_[unlaunched_] = static_cast<unsigned>(source.count);
      fragments_unlaunched_ += source.count;
      pages_unlaunched_ &=
          result.pages && (address(source.bounce) | address(destination)) % 16 == 0;
      break;
    case UnpackMode::kCopies:
      copy_fragments(source, destination);
      break;
    case UnpackMode::kHost:
      copy_through_host(source, destination, posted, result.bytes == posted);
      break;
    case UnpackMode::kStaying:
    case UnpackMode::kNone:
      break;
  }
  ++unlaunched_;
  unlaunched_bytes_ += result.bytes;
  return result;
}

void CudaUnpacker::copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  begin_request();
  fragments_[unlaunched_] = 0;  // the kernel has nothing to move for it
  begin_copy(address(to), address(from), bytes);
  ++unlaunched_;
  unlaunched_bytes_ += bytes;
}

void CudaUnpacker::prepare(const Arithmetic& arithmetic) { reducer_.prepare(arithmetic); }

UnpackResult CudaUnpacker::submit_reduce(const UnpackSource& source, const uint8_t* local,
                                         uint8_t* destination, uint64_t posted) {
  const UnpackResult result = unpack_bounds(source, posted);
  if (!result.in_bounds) return result;
  begin_request();
  fragments_[unlaunched_] = 0;  // the kernel that only moves has nothing to do
  if (mode_ == UnpackMode::kKernel) {
    reducer_.add(source, local, destination);
    reductions_unlaunched_ += source.count > 0;
  } else if (mode_ != UnpackMode::kNone) {
    uint8_t* landed = landing(posted);
    if (mode_ == UnpackMode::kCopies) copy_fragments(source, landed);
    if (mode_ == UnpackMode::kHost) copy_through_host(source, landed, posted, true);
    if (failure_.code == 0) {
      ok(reducer_.reduce(slot().stream.handle(), address(landed), address(local),
                         address(destination), posted),
         "cuLaunchKernel");
    }
  }
  ++unlaunched_;
  unlaunched_bytes_ += result.bytes;
  return result;
}

// In two passes: the stream keeps the order, so a slot has one such place, made at its first use.
uint8_t* CudaUnpacker::landing(uint64_t bytes) {
  if (slot().landing == nullptr || slot().landing->bytes() < bytes) {
    slot().landing = std::make_unique<GpuMemory>(gpu_, std::max<uint64_t>(bytes, kStagingBytes));
  }
  return reinterpret_cast<uint8_t*>(slot().landing->address());
}

void CudaUnpacker::reduce(const uint8_t* from, const uint8_t* local, uint8_t* to, uint64_t bytes) {
  begin_request();
  fragments_[unlaunched_] = 0;
  if (failure_.code == 0) {
    ok(reducer_.reduce(slot().stream.handle(), address(from), address(local), address(to), bytes),
       "cuLaunchKernel");
  }
  ++unlaunched_;
  unlaunched_bytes_ += bytes;
}

void CudaUnpacker::scale(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  begin_request();
  fragments_[unlaunched_] = 0;
  if (failure_.code == 0) {
    ok(reducer_.scale(slot().stream.handle(), address(from), address(to), bytes), "cuLaunchKernel");
  }
  ++unlaunched_;
  unlaunched_bytes_ += bytes;
}

void CudaUnpacker::begin_copy(uint64_t to, uint64_t from, size_t bytes) {
  if (failure_.code != 0 || bytes == 0) return;
  ok(cuda().copy_async(to, from, bytes, slot().stream.handle()), "cuMemcpyAsync");
}

void CudaUnpacker::copy_fragments(const UnpackSource& source, uint8_t* destination) {
  for (uint64_t i = 0; i < source.count; ++i) {
    const NetUnpackFragment& fragment = source.fragments[i];
    begin_copy(address(destination + fragment.dst_off), address(source.bounce + fragment.src_off),
               fragment.len);
  }
}

// The staging buffer is used again at once: the stream keeps the order.
void CudaUnpacker::copy_through_host(const UnpackSource& source, uint8_t* destination,
                                     uint64_t posted, bool covered) {
  if (posted > slot().staging->bytes()) {
    slot().staging = std::make_unique<PinnedMemory>(gpu_, posted);
  }
  const uint64_t staging = slot().staging->address();
  // What no fragment covers must stay as it is at the destination.
  if (!covered) begin_copy(staging, address(destination), posted);
  for (uint64_t i = 0; i < source.count; ++i) {
    const NetUnpackFragment& fragment = source.fragments[i];
    begin_copy(staging + fragment.dst_off, address(source.bounce + fragment.src_off), fragment.len);
  }
  begin_copy(address(destination), staging, posted);
}

void CudaUnpacker::begin_request() {
  if (unlaunched_ == kUnpackItems || reducer_.full()) flush();
  ++tickets_;
  if (unlaunched_ == 0 && mode_ != UnpackMode::kKernel) begin_timer();
}

// The GPU gets other work first: the measured work waits in its queue by then, and no time of the
// CPU is counted as the GPU's.
void CudaUnpacker::begin_timer() {
  if (timed_ == timers_.size() || launches_in_row_ > 0) return;
  void* stream = slot().stream.handle();
  ok(cuda().set8_async(lead_->address(), 0, lead_->bytes(), stream), "cuMemsetD8Async");
  ok(cuda().event_record(timers_[timed_].begin, stream), "cuEventRecord");
}

// Whether the kernel that stays has taken all that there is: few small receives, and nothing that
// is to be measured.
bool CudaUnpacker::has_stayed() {
  if (staying_ == nullptr || timed_ < timers_.size() || unlaunched_ > kMostStaying ||
      unlaunched_bytes_ > StayingUnpacker::kMostBytes || reducer_.items() > 0)
    return false;
  if (!staying_->has_room(unlaunched_)) return false;
  for (uint64_t i = 0; i < unlaunched_; ++i) {  // of a copy, or of nothing, there are no fragments
    if (fragments_[i] == 0 || !staying_->takes(arguments_.item[i])) return false;
  }
  const uint64_t first = tickets_ - unlaunched_ + 1;
  for (uint64_t i = 0; i < unlaunched_; ++i) staying_->put(arguments_.item[i], first + i);
  ok(staying_->tend(), "cuLaunchKernel");
  launches_[launched_++ % launches_.size()] = {kStaying, tickets_};
  forget();
  return true;
}

void CudaUnpacker::end_launch() {
  launches_[launched_++ % launches_.size()] = {next_slot_, tickets_};
  if (timed_ < timers_.size()) {  // one after the other, so that the times add up
    Timer& timer = timers_[timed_];
    timer.measured.requests += unlaunched_;
    timer.measured.bytes += unlaunched_bytes_;
    if (++launches_in_row_ == launches_a_row_) {
      ok(cuda().event_record(timer.end, slot().stream.handle()), "cuEventRecord");
      launches_in_row_ = 0;
      ++timed_;
    }
  } else {
    next_slot_ = (next_slot_ + 1) % kLaunchSlots;
  }
  forget();
}

void CudaUnpacker::forget() {
  unlaunched_ = unlaunched_bytes_ = fragments_unlaunched_ = reductions_unlaunched_ = 0;
  pages_unlaunched_ = true;
  reducer_.clear();
}

// One launch for all that is ready. Copies are under way already: then the kernel has nothing to
// move, and writes the ticket behind them.
void CudaUnpacker::flush() {
  if (unlaunched_ == 0) return;
  if (failure_.code != 0) return forget();  // nothing more is begun, nor ends
  if (mode_ == UnpackMode::kNone) {         // nothing was begun: nothing is to be waited for
    finished_ = tickets_;
    return forget();
  }
  if (has_stayed()) return;
  if (mode_ == UnpackMode::kKernel) begin_timer();
  if (reducer_.items() > 0) {
    // What else there is has the ticket, in a launch behind this one.
    const bool alone = unlaunched_ == reductions_unlaunched_;
    const uint64_t ticket_at = tickets_seen_->address() + next_slot_ * kLine;
    ok(reducer_.launch(slot().stream.handle(), slot().blocks_done.address(), alone ? ticket_at : 0,
                       tickets_),
       "cuLaunchKernel");
    if (alone) return end_launch();
  }
  UnpackArguments& a = arguments_;
  const uint64_t fragments = fragments_unlaunched_;
  a.group = fragments_of_block(fragments, gpu_.facts.multiprocessors);
  // More have nothing to do, and fewer leave the memory idle.
  const unsigned warps = std::clamp(a.group, 1u, pages_unlaunched_ ? kWarpsOfPages : kWarps);
  unsigned items = 0, most_blocks = 1;
  a.blocks = 0;
  for (uint64_t i = 0; fragments > 0 && i < unlaunched_; ++i) {
    if (fragments_[i] == 0) continue;  // no block is for it
    a.item[items++] = a.item[i];
    const unsigned blocks = (fragments_[i] + a.group - 1) / a.group;
    a.blocks += blocks;
    most_blocks = std::max(most_blocks, blocks);
  }
  a.blocks = std::max(a.blocks, 1u);  // the ticket is one's part
  a.blocks_done = slot().blocks_done.address();
  a.ticket_at = tickets_seen_->address() + next_slot_ * kLine;
  a.ticket = tickets_;
  void* arguments[] = {&a};
  ok(cuda().launch(pages_unlaunched_ ? kernels_.unpack_pages : kernels_.unpack, most_blocks,
                   std::max(items, 1u), 1, 32 * warps, 1, 1, 0, slot().stream.handle(), arguments,
                   nullptr),
     "cuLaunchKernel");
  end_launch();
}

// The kernel's release: what it wrote and read is behind us when its ticket is seen.
bool CudaUnpacker::has_ended(const Launch& launch) {
  if (launch.slot != kStaying) {
    const auto* seen =
        reinterpret_cast<const uint64_t*>(tickets_seen_->data() + launch.slot * kLine);
    return __atomic_load_n(seen, __ATOMIC_ACQUIRE) >= launch.ticket;
  }
  if (staying_->ended() >= launch.ticket) return true;
  if (failure_.code == 0) ok(staying_->tend(), "cuLaunchKernel");  // it was gone by then
  return false;
}

uint64_t CudaUnpacker::finished() {
  while (ended_ != launched_) {
    const Launch& oldest = launches_[ended_ % launches_.size()];
    if (!has_ended(oldest)) {
      // A kernel that failed writes no ticket: now and then the driver is asked.
      if (++polls_ % kPollsPerLook == 0) {
        void* const stream =
            oldest.slot == kStaying ? staying_->stream() : slots_[oldest.slot]->stream.handle();
        const int code = cuda().stream_query(stream);
        if (code != kCudaNotReady) ok(code, "cuStreamQuery");
      }
      break;
    }
    finished_ = oldest.ticket;
    ++ended_;
    polls_ = 0;
  }
  return finished_;
}

void CudaUnpacker::measure(size_t rows, size_t launches_a_row) {
  const GpuCurrent current(&gpu_);
  drop_timers();
  launches_a_row_ = launches_a_row;
  lead_ = rows > 0 ? std::make_unique<GpuMemory>(gpu_, launches_a_row * kLeadBytes) : nullptr;
  for (size_t i = 0; i < rows; ++i) {
    Timer timer{};
    check_cuda(cuda().event_create(&timer.begin, 0), "cuEventCreate");
    timers_.push_back(timer);
    check_cuda(cuda().event_create(&timers_.back().end, 0), "cuEventCreate");
  }
}

std::vector<CudaUnpacker::Measured> CudaUnpacker::measured() {
  const GpuCurrent current(&gpu_);
  std::vector<Measured> all;
  for (size_t i = 0; i < timed_; ++i) {
    Timer& timer = timers_[i];
    float ms = 0;
    check_cuda(cuda().event_wait(timer.end), "cuEventSynchronize");
    check_cuda(cuda().event_elapsed(&ms, timer.begin, timer.end), "cuEventElapsedTime");
    timer.measured.microseconds = 1e3 * ms;
    all.push_back(timer.measured);
  }
  return all;
}

void CudaUnpacker::drop_timers() {
  for (const Timer& timer : timers_) {
    cuda().event_destroy(timer.begin);
    if (timer.end != nullptr) cuda().event_destroy(timer.end);
  }
  timers_.clear();
  timed_ = launches_in_row_ = 0;
}

std::unique_ptr<Unpacker> make_cuda_unpacker(int gpu, UnpackMode mode) {
  return std::make_unique<CudaUnpacker>(gpu, mode);
}

}  // namespace tcpx
