// Memory of a session: what is registered, under which number, and why a message does not fit it.
#include <stdexcept>

#include "cuda/driver.h"
#include "library/state.h"
#include "memory/cuda_slots.h"

namespace tcpx_p2p {
namespace {

constexpr uintptr_t kPage = 4096;

// Numbers are used once a process, and of each it is known whose it is.
std::mutex g_mutex;
uint64_t g_next = 1;
std::map<uint64_t, const SessionState*> g_owner;

uint64_t new_number(const SessionState* owner) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_owner.emplace(g_next, owner);
  return g_next++;
}

void forget_number(uint64_t number) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_owner.erase(number);
}

bool is_used(uint64_t number) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_owner.count(number) != 0;
}

}  // namespace

bool SessionState::takes(MemoryKind kind) const {
  return kind == MemoryKind::kHost || (kind == MemoryKind::kCuda && takes_cuda_);
}

SessionState::Memory SessionState::memory_of(void* data, size_t bytes, MemoryKind kind) const {
  const auto start = reinterpret_cast<uintptr_t>(data);
  if (data == nullptr && bytes > 0) {
    throw UsageError(Status::kInvalidArgument, "memory at NULL cannot be registered");
  }
  if (bytes > UINTPTR_MAX - start) {
    throw UsageError(
        Status::kInvalidArgument,
        "memory of " + std::to_string(bytes) + " bytes from there ends behind the last address");
  }
  if (kind == MemoryKind::kHost) {
    return {static_cast<uint8_t*>(data), bytes, 0, bytes, kNetPtrHost};
  }
  if (kind != MemoryKind::kCuda) {
    throw UsageError(Status::kInvalidArgument,
                     "no such kind of memory: " + std::to_string(static_cast<int>(kind)));
  }
  if (!takes_cuda_) {
    throw UsageError(Status::kInvalidArgument,
                     "memory of a GPU needs a session with a gpu in its options");
  }
  // A plugin takes whole pages, on trust: those around it, if they are one allocation's.
  const uintptr_t first = start / kPage * kPage;
  const uintptr_t end = (start + bytes + kPage - 1) / kPage * kPage;
  try {
    const tcpx::CudaSlots checked(first, end - first, options_.gpu);
  } catch (const std::invalid_argument& error) {
    throw UsageError(Status::kInvalidArgument, error.what());
  } catch (const std::runtime_error& error) {
    throw FatalError(Status::kGpuFailed, error.what());
  }
  return {reinterpret_cast<uint8_t*>(first), end - first, start - first, bytes, kNetPtrCuda};
}

uint64_t SessionState::register_memory(void* data, size_t bytes, MemoryKind kind) {
  require_open();
  const Memory memory = memory_of(data, bytes, kind);
  const std::lock_guard<std::mutex> lock(mutex_);
  require_open();
  const uint64_t id = new_number(this);
  std::vector<Remote> done;
  try {
    for (const auto& [name, remote] : remotes_) {
      remote->link().add_memory(id, memory.data, memory.registered, memory.type,
                                options_.register_lazily);
      done.push_back(remote);
    }
  } catch (const std::exception& error) {
    for (const Remote& remote : done) remote->link().deregister_memory(id);
    forget_number(id);
    throw FatalError(Status::kSetupFailed, error.what());
  }
  memories_.emplace(id, memory);
  return id;
}

void SessionState::deregister_memory(uint64_t id) {
  require_open();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = memories_.find(id);
  if (found == memories_.end()) throw_unknown(id);
  const Memory memory = found->second;
  std::vector<Remote> done;
  std::string refusal;
  for (const auto& [name, remote] : remotes_) {
    try {
      remote->link().deregister_memory(id);
      done.push_back(remote);
    } catch (const tcpx::MemoryInUse& error) {
      for (const Remote& other : done) {  // as they were
        other->link().add_memory(id, memory.data, memory.registered, memory.type, true);
      }
      throw UsageError(Status::kMemoryInUse, "mem_id " + std::to_string(id) + " is " +
                                                 error.what() + ": wait for them first");
    } catch (const std::exception& error) {  // it is gone there nevertheless
      if (refusal.empty()) refusal = remote->prefix() + error.what();
    }
  }
  memories_.erase(found);
  forget_number(id);
  if (!refusal.empty()) throw FatalError(Status::kPluginFailed, refusal);
}

uint64_t SessionState::memory_bytes(uint64_t id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = memories_.find(id);
  if (found == memories_.end()) throw_unknown(id);
  return found->second.bytes;
}

void SessionState::throw_unknown(uint64_t id) const {
  if (is_used(id)) {
    throw UsageError(Status::kForeignMemory, "mem_id " + std::to_string(id) +
                                                 " is of another session: register the memory "
                                                 "with this one, too");
  }
  std::string known;
  for (const auto& [each, memory] : memories_) {
    known += (known.empty() ? "" : ", ") + std::to_string(each);
    if (known.size() > 60) break;
  }
  throw UsageError(Status::kUnknownMemory,
                   "no memory is registered as mem_id " + std::to_string(id) +
                       " (registered: " + (known.empty() ? "none" : known) + ")");
}

// Throws for the first piece that is not within its memory.
void SessionState::explain(const Piece* pieces, size_t count) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < count; ++i) {
    const Piece& piece = pieces[i];
    const auto found = memories_.find(piece.mem_id);
    if (found == memories_.end()) throw_unknown(piece.mem_id);
    const uint64_t bytes = found->second.bytes;
    if (piece.offset <= bytes && piece.bytes <= bytes - piece.offset) continue;
    throw UsageError(Status::kOutOfBounds, "offset (" + std::to_string(piece.offset) +
                                               ") + bytes (" + std::to_string(piece.bytes) +
                                               ") is outside of mem_id " +
                                               std::to_string(piece.mem_id) + ", which has " +
                                               std::to_string(bytes) + " bytes; stay within it");
  }
  throw UsageError(Status::kUnknownMemory, "a mem_id was deregistered meanwhile");
}

// Offsets in what is registered, where that is more than the caller gave.
void SessionState::shift(const Piece* pieces, size_t count,
                         std::vector<tcpx::MessagePlace>* places) const {
  bool fits = true;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < count && fits; ++i) {
      const auto found = memories_.find(pieces[i].mem_id);
      fits = found != memories_.end() && pieces[i].offset <= found->second.bytes &&
             pieces[i].bytes <= found->second.bytes - pieces[i].offset;
      if (fits) (*places)[i].offset += found->second.shift;
    }
  }
  if (!fits) explain(pieces, count);
}

}  // namespace tcpx_p2p
