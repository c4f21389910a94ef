#include "softtcpx/gpu/copy_queue.h"

#include <time.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "softtcpx/environment/log.h"

namespace softtcpx {
namespace {

constexpr unsigned kNonBlocking = 1;  // of cuStreamCreate: does not wait for the default stream
constexpr size_t kPageBytes = 4096;
constexpr int kTooMany = 2;  // out of memory: more callers than there are places for
constexpr const char* kTell = "cuStreamWriteValue32";
constexpr const char* kLaunch = "cuLaunchKernel";
// Numbers that are to be told at a time: the engine has the next copies when it ends the last ones.
constexpr uint32_t kUnderWay = 2;
// No copy joins a number that has so many bytes: in their 20 us none of them may be sent.
constexpr uint64_t kTogetherBytes = 1 << 20;
constexpr std::chrono::seconds kLastNumbers{2};

}  // namespace

CopyQueue::CopyQueue(const Gpu& gpu, int64_t stay_us) : gpu_(gpu), awaited_(1 - kUnderWay) {
  if (!memory_.open(gpu, kPageBytes))
    throw std::system_error(errno, std::generic_category(), "memory for copies from the GPU");
  told_ = reinterpret_cast<uint32_t*>(memory_.host());
  const CurrentContext current(gpu_);
  check_cuda(*gpu_.driver, "cuStreamCreate", gpu_.driver->stream_create(&stream_, kNonBlocking));
  SOFTTCPX_INFO("copies out of GPU %d: %llu bytes page-locked", gpu_.ordinal,
                static_cast<unsigned long long>(memory_.bytes()));
  if (stay_us == 0 || gpu_.driver->launch_kernel == nullptr) return;
  try {
    staying_ = std::make_unique<StayingCopier>(
        gpu_, reinterpret_cast<uint64_t>(memory_.as_seen_by_gpu(told_)), stay_us);
  } catch (const std::exception& error) {
    SOFTTCPX_INFO("no kernel stays on GPU %d for small copies: %s", gpu_.ordinal, error.what());
  }
}

CopyQueue::~CopyQueue() {
  const CurrentContext current(gpu_);
  if (current.code() != 0) return;  // the context is gone, and its streams with it
  // The last number is seen a little before the driver says that its stream is idle.
  const auto deadline = std::chrono::steady_clock::now() + kLastNumbers;
  int code = query();
  while (code == kCudaNotReady && !given_up_.load(std::memory_order_relaxed) &&
         std::chrono::steady_clock::now() < deadline) {
    const timespec pause{0, 20'000};
    ::nanosleep(&pause, nullptr);
    code = query();
  }
  staying_.reset();             // its kernel tells numbers, too
  if (code == kCudaNotReady) {  // a number that comes late finds its word still there
    SOFTTCPX_WARN("copies from GPU %d do not end; their %llu bytes stay page-locked", gpu_.ordinal,
                  static_cast<unsigned long long>(memory_.bytes()));
    memory_.abandon();
    return;
  }
  gpu_.driver->stream_destroy(stream_);
}

uint32_t CopyQueue::begin(Client& client, uint8_t* to, const uint8_t* from, uint64_t length) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiting() == kMostWaiting && staying_ == nullptr) hand_over_oldest();
  if (broken_ != 0 || waiting() == kMostWaiting) {
    client.copy_failed(broken_call_, broken_ != 0 ? broken_ : kTooMany);
    return number_;
  }
  if (its_copies_ == kMostTogether || its_bytes_ >= kTogetherBytes) {
    ++number_;
    its_copies_ = 0;
    its_bytes_ = 0;
  }
  const uint32_t number = number_;
  copies_[(first_ + waiting()) % kMostWaiting] = {&client, to, reinterpret_cast<CudaAddress>(from),
                                                  length, number};
  waiting_.store(waiting() + 1, std::memory_order_relaxed);
  ++its_copies_;
  its_bytes_ += length;
  hand_over_locked();
  return number;
}

void CopyQueue::hand_over() {
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) hand_over_locked();  // else another caller is about it
}

void CopyQueue::hand_over_locked() {
  while (has_due() && has_way(copies_[first_ % kMostWaiting].number)) hand_over_oldest();
  if (staying_ == nullptr || !staying_->needs_kernel() || broken_ != 0) return;
  if (const int code = staying_->tend()) break_down(kLaunch, code, nullptr, 0);
}

// Numbers of the one way are told before the other has any. False: not yet, and what is awaited is
// their last one.
bool CopyQueue::has_way(uint32_t number) {
  if (staying_ == nullptr) return true;
  uint64_t count = 0, bytes = 0;
  bool takes = landed(by_stream_);
  for (uint32_t i = 0; i < waiting(); ++i) {
    const Copy& copy = copies_[(first_ + i) % kMostWaiting];
    if (copy.number != number) break;
    ++count;
    bytes += copy.length;
    takes = takes && StayingCopier::takes(copy.from, copy.to, copy.length);
  }
  its_way_is_letters_ = takes && staying_->has_room(count, bytes);
  if (its_way_is_letters_ || landed(by_letter_)) return true;
  awaited_.store(by_letter_, std::memory_order_relaxed);
  return false;
}

void CopyQueue::hand_over_oldest() {
  std::array<Copy, kMostTogether> together;
  const uint32_t number = copies_[first_ % kMostWaiting].number;
  uint32_t count = 0, left = waiting();
  for (; left > 0 && copies_[first_ % kMostWaiting].number == number; --left, ++first_) {
    const Copy& copy = copies_[first_ % kMostWaiting];
    if (copy.client != nullptr) together[count++] = copy;
  }
  waiting_.store(left, std::memory_order_relaxed);
  if (number == number_) {  // nothing more joins it
    ++number_;
    its_copies_ = 0;
    its_bytes_ = 0;
  }
  const char* call = kTell;
  int code;
  if (std::exchange(its_way_is_letters_, false)) {
    for (uint32_t i = 0; i < count; ++i)
      staying_->add(together[i].from, together[i].to, together[i].length);
    call = kLaunch;
    code = staying_->send(number);
    by_letter_ = number;
  } else {
    copy_together(together.data(), count);
    code = gpu_.driver->stream_write_value32(
        stream_, reinterpret_cast<CudaAddress>(memory_.as_seen_by_gpu(told_)), number, 0);
    by_stream_ = number;
  }
  awaited_.store(number - kUnderWay + 1, std::memory_order_relaxed);
  if (code != 0) break_down(call, code, together.data(), count);
}

// What was told before holds, and nothing comes behind it.
void CopyQueue::break_down(const char* call, int code, const Copy* copies, uint32_t count) {
  broken_ = code;
  broken_call_ = call;
  for (uint32_t i = 0; i < count; ++i) copies[i].client->copy_failed(call, code);
  for (uint32_t i = 0; i < waiting(); ++i) {
    const Copy& copy = copies_[(first_ + i) % kMostWaiting];
    if (copy.client != nullptr) copy.client->copy_failed(call, code);
  }
  waiting_.store(0, std::memory_order_relaxed);
}

void CopyQueue::copy_together(const Copy* copies, uint32_t count) {
  const CudaDriver& driver = *gpu_.driver;
  if (count > 1 && driver.memcpy_batch_async != nullptr) {
    std::array<CudaAddress, kMostTogether> to, from;
    std::array<size_t, kMostTogether> bytes;
    for (uint32_t i = 0; i < count; ++i) {
      to[i] = reinterpret_cast<CudaAddress>(copies[i].to);
      from[i] = copies[i].from;
      bytes[i] = copies[i].length;
    }
    CudaCopyAttributes attributes;
    size_t first = 0;
    if (driver.memcpy_batch_async(to.data(), from.data(), bytes.data(), count, &attributes, &first,
                                  1, stream_) == 0)
      return;
    // One by one, so that each client is told of its own.
  }
  for (uint32_t i = 0; i < count; ++i) {
    const int code =
        driver.memcpy_dtoh_async(copies[i].to, copies[i].from, copies[i].length, stream_);
    if (code != 0) copies[i].client->copy_failed("cuMemcpyDtoHAsync", code);
  }
}

void CopyQueue::forget(const Client& client) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < waiting(); ++i) {
    Copy& copy = copies_[(first_ + i) % kMostWaiting];
    if (copy.client == &client) copy.client = nullptr;
  }
}

int CopyQueue::query() {
  const int code = gpu_.driver->stream_query(stream_);
  return code == 0 && staying_ != nullptr ? staying_->query() : code;
}

bool CopyQueue::works() {
  const CurrentContext current(gpu_);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (broken_ != 0 || current.code() != 0) return false;
  const int code = query();
  return code == 0 || code == kCudaNotReady;
}

std::shared_ptr<CopyQueue> CopyQueues::of(const Gpu& gpu, int64_t stay_us) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = queues_.begin(); it != queues_.end();) {
    const std::shared_ptr<CopyQueue> queue = it->lock();
    if (queue != nullptr && queue->gpu().context == gpu.context && queue->works()) return queue;
    it = queue == nullptr ? queues_.erase(it) : it + 1;
  }
  auto queue = std::make_shared<CopyQueue>(gpu, stay_us);
  queues_.push_back(queue);
  return queue;
}

}  // namespace softtcpx
