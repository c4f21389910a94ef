// Streams and events, and values written when a stream gets there.
#include <time.h>

#include <atomic>
#include <cstring>

#include "fake.h"

namespace fakecuda {
namespace {

std::mutex hold_mutex;
std::condition_variable hold_changed;
bool held = false;

void wait_while_held() {
  std::unique_lock<std::mutex> lock(hold_mutex);
  hold_changed.wait(lock, [] { return !held; });
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Stream::Stream(Context& context_, bool blocking_, bool lazy_)
    : context(context_), blocking(blocking_), lazy(lazy_) {
  thread_ = std::thread([this] { serve(); });
}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::submit(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.push_back(std::move(work));
    ++unfinished_;
  }
  changed_.notify_all();
}

void Stream::want() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    wanted_ = unfinished_ > 0;
  }
  changed_.notify_all();
}

void Stream::wait() {
  want();
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return unfinished_ == 0; });
}

bool Stream::idle() {
  want();
  const std::lock_guard<std::mutex> lock(mutex_);
  return unfinished_ == 0;
}

void Stream::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || (!work_.empty() && (wanted_ || !lazy)); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    wait_while_held();
    if (context.error == kSuccess) work();  // nothing runs in a context that has failed
    lock.lock();
    if (--unfinished_ == 0) wanted_ = false;
    changed_.notify_all();
  }
}

Stream* stream_of(Context* context, void* handle, CUresult* error) {
  *error = kSuccess;
  if (handle == nullptr) return context->legacy.get();
  const auto found = context->streams.find(static_cast<Stream*>(handle));
  if (found != context->streams.end()) return found->second.get();
  *error = kInvalidHandle;
  return nullptr;
}

std::vector<std::shared_ptr<Stream>> streams_of(Context* context, bool blocking_only) {
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [pointer, stream] : context->streams) {
    if (stream->blocking || !blocking_only) streams.push_back(stream);
  }
  if (context->legacy != nullptr) streams.push_back(context->legacy);
  return streams;
}

void keep_order(std::unique_lock<std::recursive_mutex>& lock, const Stream& stream) {
  const auto blocking = streams_of(&stream.context, true);
  lock.unlock();
  const Stream* legacy = blocking.back().get();
  for (const auto& other : blocking) {
    if (other.get() != &stream && (&stream == legacy || (stream.blocking && other->lazy)))
      other->wait();
  }
}

}  // namespace fakecuda

using namespace fakecuda;

// While held, nothing asynchronous runs; whoever waits for it waits too.
FAKECUDA_API void fakecuda_hold(int hold) {
  {
    const std::lock_guard<std::mutex> lock(hold_mutex);
    held = hold != 0;
  }
  hold_changed.notify_all();
}

FAKECUDA_API CUresult cuStreamCreate(void** stream, unsigned flags) {
  ENTER_CONTEXT();
  auto created = std::make_shared<Stream>(*context, (flags & 1) == 0);
  *stream = created.get();
  context->streams[created.get()] = created;
  return kSuccess;
}

FAKECUDA_API CUresult cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}

FAKECUDA_API CUresult cuStreamDestroy_v2(void* handle) {
  ENTER_CONTEXT();
  const auto found = context->streams.find(static_cast<Stream*>(handle));
  if (found == context->streams.end()) return kInvalidHandle;
  const auto gone = std::move(found->second);
  context->streams.erase(found);
  lock.unlock();
  gone->wait();
  return kSuccess;
}

FAKECUDA_API CUresult cuStreamSynchronize(void* handle) {
  ENTER_UNLESS_CAPTURED();
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  const auto others = streams_of(context, true);
  lock.unlock();
  if (handle == nullptr) {
    for (const auto& other : others) other->wait();
  }
  stream->wait();
  return context->error;
}

FAKECUDA_API CUresult cuStreamQuery(void* handle) {
  ENTER_UNLESS_CAPTURED();
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  if (!stream->idle()) return kNotReady;
  return context->error;
}

FAKECUDA_API CUresult cuEventCreate(Event** event, unsigned) {
  ENTER_CONTEXT();
  *event = new Event;
  return kSuccess;
}

FAKECUDA_API CUresult cuEventDestroy_v2(Event* event) {
  ENTER_CONTEXT();
  lock.unlock();
  {
    std::unique_lock<std::mutex> waiting(event->mutex);
    event->changed.wait(waiting, [event, context] {
      return event->reached == event->recorded || context->error != kSuccess;
    });
  }
  delete event;
  return kSuccess;
}

FAKECUDA_API CUresult cuEventRecord(Event* event, void* handle) {
  ENTER_CONTEXT();
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  {
    const std::lock_guard<std::mutex> recording(event->mutex);
    ++event->recorded;
  }
  stream->submit([event] {
    const std::lock_guard<std::mutex> reaching(event->mutex);
    ++event->reached;
    event->reached_ns = now_ns();
    event->changed.notify_all();
  });
  stream->want();  // an event may be waited for where nobody knows its stream
  return kSuccess;
}

FAKECUDA_API CUresult cuEventQuery(Event* event) {
  ENTER_UNLESS_CAPTURED();
  const std::lock_guard<std::mutex> looking(event->mutex);
  return event->reached == event->recorded ? kSuccess : kNotReady;
}

FAKECUDA_API CUresult cuEventSynchronize(Event* event) {
  ENTER_UNLESS_CAPTURED();
  lock.unlock();
  std::unique_lock<std::mutex> waiting(event->mutex);
  event->changed.wait(waiting, [event] { return event->reached == event->recorded; });
  return context->error;
}

FAKECUDA_API CUresult cuEventElapsedTime_v2(float* ms, Event* begin, Event* end) {
  ENTER_CONTEXT();
  for (const Event* event : {begin, end}) {
    if (event->recorded == 0) return kInvalidHandle;
    if (event->reached != event->recorded) return kNotReady;
  }
  *ms = static_cast<float>(end->reached_ns - begin->reached_ns) / 1e6f;
  return kSuccess;
}
FAKECUDA_API CUresult cuEventElapsedTime(float* ms, Event* begin, Event* end) {
  return cuEventElapsedTime_v2(ms, begin, end);
}

FAKECUDA_API CUresult cuStreamWaitEvent(void* handle, Event* event, unsigned) {
  ENTER_CONTEXT();
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  uint64_t awaited = 0;
  {
    const std::lock_guard<std::mutex> looking(event->mutex);
    awaited = event->recorded;
  }
  stream->submit([event, awaited] {
    std::unique_lock<std::mutex> waiting(event->mutex);
    event->changed.wait(waiting, [event, awaited] { return event->reached >= awaited; });
  });
  return kSuccess;
}

FAKECUDA_API CUresult cuLaunchHostFunc(void* handle, void (*function)(void*), void* argument) {
  ENTER_CONTEXT();
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  stream->submit([function, argument] { function(argument); });
  return kSuccess;
}

namespace {

template <typename Value>
CUresult write_value(Context* context, void* handle, CUdeviceptr pointer, Value value) {
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  uint8_t* target = reach_from(context->device, pointer, sizeof(value));
  if (target == nullptr || pointer % sizeof(value) != 0) return kInvalidValue;
  stream->submit([target, value] {
    __atomic_store_n(reinterpret_cast<Value*>(target), value, __ATOMIC_RELEASE);
  });
  return kSuccess;
}

}  // namespace

FAKECUDA_API CUresult cuStreamWriteValue32_v2(void* stream, CUdeviceptr pointer, uint32_t value,
                                              unsigned) {
  ENTER_CONTEXT();
  return write_value(context, stream, pointer, value);
}
FAKECUDA_API CUresult cuStreamWriteValue32(void* stream, CUdeviceptr pointer, uint32_t value,
                                           unsigned flags) {
  return cuStreamWriteValue32_v2(stream, pointer, value, flags);
}

FAKECUDA_API CUresult cuStreamWriteValue64_v2(void* stream, CUdeviceptr pointer, uint64_t value,
                                              unsigned) {
  ENTER_CONTEXT();
  return write_value(context, stream, pointer, value);
}
FAKECUDA_API CUresult cuStreamWriteValue64(void* stream, CUdeviceptr pointer, uint64_t value,
                                           unsigned flags) {
  return cuStreamWriteValue64_v2(stream, pointer, value, flags);
}
