// The way of all connections of a device to the copy engine of one GPU.
//
// A call of the driver costs microseconds, and behind each copy that was begun by itself the engine
// waits until the bytes have reached the host. So what connections begin while the engine has
// enough to do waits, and goes to it together: one call, and one number behind all of it. The GPU
// writes that number into a word of page-locked memory, and whoever waits looks there: asking the
// driver would take a lock that all threads of the process share.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "softtcpx/gpu/cuda.h"
#include "softtcpx/gpu/pinned.h"
#include "softtcpx/gpu/staying_copier.h"

namespace softtcpx {

class CopyQueue {
 public:
  // Whoever begins copies.
  class Client {
   public:
    // Of whichever caller hands the copy over, before its number may be told.
    virtual void copy_failed(const char* call, int code) = 0;

   protected:
    ~Client() = default;
  };

  // Throws CudaError, or std::system_error where the operating system has no memory to give.
  // `stay_us`: how long a kernel for small copies stays without one; 0: there is none.
  CopyQueue(const Gpu& gpu, int64_t stay_us);
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Of callers of the plugin, any number of them: where only one thread calls, the lock is free.
  // The context must be current.

  // Whether another copy may wait, by each of many callers, where what waits may not go at once.
  bool has_room() const {
    return staying_ == nullptr ||
           waiting_.load(std::memory_order_relaxed) < kMostWaiting - kMostCallers;
  }
  // The number that is told when the copy has landed.
  uint32_t begin(Client& client, uint8_t* to, const uint8_t* from, uint64_t length);
  // Hands over what waits, once the engine has little left to do.
  void hand_over();
  bool is_due() const { return has_due() || (staying_ != nullptr && staying_->needs_kernel()); }
  // What waits of a client's is not copied any more.
  void forget(const Client& client);
  // Asks the driver: 600 while copies are under way, 0 when none is, anything else has failed.
  int query();
  // Copies of a client do not end: the queue will not wait for them either.
  void give_up() { given_up_.store(true, std::memory_order_relaxed); }
  // Whether another connection may join.
  bool works();

  // Whoever asks.
  // With all that was begun before: they are on one stream.
  bool landed(uint32_t number) const {
    return static_cast<int32_t>(__atomic_load_n(told_, __ATOMIC_ACQUIRE) - number) >= 0;
  }

  const Gpu& gpu() const { return gpu_; }

 private:
  struct Copy {
    Client* client;  // none: forgotten
    uint8_t* to;
    CudaAddress from;
    uint64_t length;
    uint32_t number;
  };
  static constexpr uint32_t kMostWaiting = 256;  // a power of two
  static constexpr uint32_t kMostTogether = 32;
  static constexpr uint32_t kMostCallers = 64;

  uint32_t waiting() const { return waiting_.load(std::memory_order_relaxed); }
  bool has_due() const {
    return waiting_.load(std::memory_order_relaxed) > 0 &&
           landed(awaited_.load(std::memory_order_relaxed));
  }
  void hand_over_locked();
  void hand_over_oldest();
  bool has_way(uint32_t number);
  void copy_together(const Copy* copies, uint32_t count);
  void break_down(const char* call, int code, const Copy* copies, uint32_t count);

  const Gpu gpu_;
  PinnedMemory memory_;       // a page with `told_`
  uint32_t* told_ = nullptr;  // the last number that the GPU wrote
  CudaStream stream_ = nullptr;
  std::atomic<bool> given_up_{false};

  std::mutex mutex_;  // guards what follows; the two atomics are read without it
  std::array<Copy, kMostWaiting> copies_;
  uint32_t first_ = 0;                // of those that wait, counted for ever
  std::atomic<uint32_t> waiting_{0};  // how many
  uint32_t number_ = 1;               // of the copy that comes next
  uint32_t its_copies_ = 0;           // that wait with the same number
  uint64_t its_bytes_ = 0;
  std::atomic<uint32_t> awaited_;  // when this is told, more is handed over
  // The last numbers of the stream, and of a kernel that stays: one way at a time has copies under
  // way, so that numbers are told in their order.
  uint32_t by_stream_ = 0, by_letter_ = 0;
  bool its_way_is_letters_ = false;  // of what is handed over next
  std::unique_ptr<StayingCopier> staying_;
  // The driver's code, once it writes no number any more, and of which call.
  int broken_ = 0;
  const char* broken_call_ = "";
};

// The queues of a device: one for each GPU, as long as a connection has it; one that has failed is
// joined no more.
class CopyQueues {
 public:
  // Throws as the constructor of a queue.
  std::shared_ptr<CopyQueue> of(const Gpu& gpu, int64_t stay_us);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<CopyQueue>> queues_;
};

}  // namespace softtcpx
