// A comm and its messages over a socket: each is a header and its bytes, in order.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "fault.h"
#include "gpu_memory.h"
#include "net/abi_v11.h"

namespace {

constexpr int kGroup = 4;     // receives of a request
constexpr int kWraps = 4096;  // messages of a comm
constexpr int kRarely = 500;  // messages of a process
constexpr uint32_t kData = 1, kBye = 2;

struct Header {
  uint64_t bytes;
  uint32_t kind;
  int32_t tag;
};

struct Part {
  uint8_t* data = nullptr;
  uint64_t room = 0;
  int tag = 0;
  uint64_t bytes = 0;
  bool filled = false;
  std::vector<uint8_t> stage{};  // of memory of a GPU: `data` is here,
  void* target = nullptr;        // and of a receive goes there
};

// Where the bytes of a part are for who sends or receives them by sockets.
Part part_of(void* data, uint64_t room, int tag, void* mhandle, bool sends) {
  Part part{static_cast<uint8_t*>(data), room, tag};
  const auto* region = static_cast<const Region*>(mhandle);
  if (room == 0 || !(region->on_gpu || region->lost)) return part;
  part.stage.resize(room);
  part.data = part.stage.data();
  if (sends) copy(part.data, data, room);
  if (!sends && !region->lost) part.target = data;
  return part;
}

struct Comm;

struct Request {
  Comm* comm = nullptr;
  Part parts[kGroup];
  int n = 1;
  int number = 0;
  bool done = false;
};

struct Comm {
  int fd;
  bool sends;
  uint64_t id = 0;               // of both ends alike
  std::deque<Request*> queue{};  // what is not done, the oldest first
  size_t held = 0;               // requests that are not released
  int posted = 0;
  int code = 0;
  std::set<const void*> registered{};
  NetUnpackDevice block{};
  // The message under way.
  Header header{};
  size_t moved = 0;  // of the header, then of the bytes
  bool has_header = false;
  Part* into = nullptr;
};

std::mutex g_opening;
std::set<Comm*> g_open;
Comm* g_newest = nullptr;

bool moves(Comm* comm, const void* data, size_t bytes, bool out) {
  const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  auto* at = static_cast<uint8_t*>(const_cast<void*>(data)) + comm->moved;
  const size_t left = bytes - comm->moved;
  if (left == 0) return true;
  const ssize_t n = out ? send(comm->fd, at, left, flags) : recv(comm->fd, at, left, flags);
  if (n > 0) comm->moved += static_cast<size_t>(n);
  const bool again = n < 0 && (errno == EAGAIN || errno == EINTR);
  const char* silent = out ? "lost-receiver-silent" : "lost-sender-silent";
  if (n <= 0 && !again && !fault(silent)) comm->code = kNetRemoteError;
  return comm->moved == bytes;
}

void finish(Comm* comm, Request* request) {
  request->done = true;
  comm->queue.pop_front();
  if (fault("completes-twice") && !comm->sends && !comm->queue.empty()) {
    comm->queue.front()->done = true;
    comm->queue.pop_front();
  }
}

std::atomic<int> g_arrived{0};

void progress_send(Comm* comm) {
  while (!comm->queue.empty() && comm->code == 0) {
    Request* request = comm->queue.front();
    Part& part = request->parts[0];
    if (!comm->has_header) {
      comm->header = {part.room, kData, part.tag};
      if (!moves(comm, &comm->header, sizeof comm->header, true)) return;
      comm->has_header = true;
      comm->moved = 0;
    }
    if (!moves(comm, part.data, part.room, true)) return;
    comm->has_header = false;
    comm->moved = 0;
    finish(comm, request);
  }
}

Part* place_of(Comm* comm) {
  Request* request = comm->queue.front();
  if (fault("reorders") && comm->queue.size() > 2 && request->n == 1 &&
      !comm->queue[1]->parts[0].filled && request->parts[0].data != nullptr) {
    std::swap(request->parts[0], comm->queue[1]->parts[0]);
  }
  for (int i = 0; i < request->n; ++i) {
    Part& part = request->parts[i];
    const bool fits = request->n == 1 || fault("tags-ignored") || part.tag == comm->header.tag;
    if (!part.filled && fits) return &part;
  }
  return nullptr;
}

void progress_receive(Comm* comm) {
  if (fault("one-comm") && comm != g_newest) return;
  while (!comm->queue.empty() && comm->code == 0) {
    Request* request = comm->queue.front();
    if (!comm->has_header) {
      if (!moves(comm, &comm->header, sizeof comm->header, false)) return;
      if (comm->header.kind == kBye) {
        comm->moved = 0;
        if (fault("bye-ignored")) hang();
        comm->code = kNetRemoteError;
        return;
      }
      comm->has_header = true;
      comm->moved = 0;
      comm->into = place_of(comm);
      if (comm->into == nullptr || comm->header.bytes > comm->into->room) {
        comm->code = kNetInvalidUsage;
        return;
      }
    }
    if (comm->header.bytes == 0 && fault("empty-never-done")) return;
    if (!moves(comm, comm->into->data, comm->header.bytes, false)) return;
    comm->has_header = false;
    comm->moved = 0;
    Part* part = comm->into;
    part->bytes = comm->header.bytes;
    part->filled = true;
    if (fault("garbles") && part->bytes > 0) part->data[part->bytes / 2] ^= 1;
    const bool odd = reinterpret_cast<uintptr_t>(part->data) % 64 != 0;
    if (fault("odd-places") && odd && part->bytes > 0) *part->data ^= 1;
    if (fault("wraps") && comm->posted > kWraps && part->bytes > 0) *part->data ^= 1;
    if (fault("rarely-wrong") && part->bytes > 0 && ++g_arrived % kRarely == 0) *part->data ^= 1;
    if (fault("overwrites")) memset(part->data + part->bytes, 0, part->room - part->bytes);
    const uintptr_t beyond = reinterpret_cast<uintptr_t>(part->data) % 64;
    if (fault("spills")) memset(part->data - beyond, 0, beyond);
    if (part->target != nullptr) copy(part->target, part->data, part->bytes);
    bool whole = true;
    for (int i = 0; i < request->n; ++i) whole &= request->parts[i].filled;
    if (whole) finish(comm, request);
  }
}

void progress(Comm* comm) { comm->sends ? progress_send(comm) : progress_receive(comm); }

}  // namespace
