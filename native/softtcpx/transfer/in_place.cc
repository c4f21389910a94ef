#include "softtcpx/transfer/in_place.h"

#include <algorithm>
#include <cstring>

namespace softtcpx {
namespace {

// Of receives that nobody flushes; the oldest are forgotten.
constexpr size_t kMostHidden = 1024;

}  // namespace

InPlace::InPlace(RecvComm& comm, const Settings& settings, size_t sockets)
    : hides_(settings.traps.hidden > 0),
      sockets_(sockets),
      ends_(new std::array<uint8_t, kHiddenBytes>[RequestRing::kSlots]) {
  for (Ticket& ticket : tickets_) ticket.comm = &comm;
}

bool InPlace::serves(Memory memory, const Gpu& gpu) const {
  if (memory == Memory::kHost) return true;
  return !placers(memory).empty() && (memory == Memory::kEmulated || gpu.ordinal == ordinal_);
}

bool InPlace::serve(Memory memory, const Gpu& gpu) {
  if (serves(memory, gpu)) return true;
  Placers& made = placers_[memory == Memory::kGpu];
  if (!made.empty()) return false;
  Placers all;
  for (size_t i = 0; i <= sockets_; ++i)
    all.push_back(std::make_unique<Placer>(memory == Memory::kGpu ? gpu : Gpu{}));
  if (memory == Memory::kGpu) ordinal_ = gpu.ordinal;
  made = std::move(all);
  return true;
}

Ticket* InPlace::take_ticket() {
  const auto found = std::find_if(tickets_.begin(), tickets_.end(),
                                  [](const Ticket& ticket) { return !ticket.taken; });
  if (found == tickets_.end()) return nullptr;
  found->taken = true;
  found->done = 0;
  found->tests = 0;
  return &*found;
}

void InPlace::prepare(Request& request, uint64_t number) const {
  request.placed = request.memory != Memory::kHost;
  request.number = static_cast<uint32_t>(number);
  request.tag = next.tag;
  request.together = next.together;
  request.first = next.first;
}

Request* InPlace::match(RequestRing& ring, const ChunkHeader& header) const {
  const Request& named = ring.slot(header.sequence);
  Request* free = nullptr;
  for (uint64_t k = named.first; k < named.first + named.together; ++k) {
    Request& each = ring.slot(k);
    if (each.announced && each.message == header.sequence) return &each;
    const bool fits = !each.announced && (named.together == 1 || each.tag == header.tag);
    if (fits && free == nullptr) free = &each;
  }
  if (free != nullptr) free->message = header.sequence;
  return free;
}

uint64_t InPlace::hidden_bytes(const Request& request) const {
  return hides_ ? std::min(request.total, kHiddenBytes) : 0;
}

bool InPlace::put(size_t socket, const Request& request, uint8_t* to, const uint8_t* from,
                  uint64_t bytes) {
  const auto at = static_cast<uint64_t>(to - request.data);
  const uint64_t shown = request.total - hidden_bytes(request);
  const uint64_t now = at < shown ? std::min(bytes, shown - at) : 0;
  auto& end = ends_[request.number % RequestRing::kSlots];
  if (bytes > now) std::memcpy(&end[at + now - shown], from + now, bytes - now);
  return now == 0 || placers(request.memory)[socket]->put(to, from, now);
}

void InPlace::done(const Request& request) {
  const uint64_t bytes = request.placed ? hidden_bytes(request) : 0;
  if (bytes == 0) return;
  if (hidden_.size() == kMostHidden) hidden_.erase(hidden_.begin());
  Hidden& hidden = hidden_[request.data];
  hidden = {request.memory, request.total - bytes, bytes,
            ends_[request.number % RequestRing::kSlots]};
}

bool InPlace::show(uint8_t* data) {
  const auto found = hidden_.find(data);
  if (found == hidden_.end()) return true;
  const Hidden& hidden = found->second;
  const bool put = placers(hidden.memory)[sockets_]->put(data + hidden.offset,
                                                         hidden.content.data(), hidden.bytes);
  hidden_.erase(found);
  return put;
}

}  // namespace softtcpx
