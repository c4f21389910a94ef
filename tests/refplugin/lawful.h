// What the lawful but odd plugins beside have in common: comms over loopback, one message after
// another, that move in calls alone. Nothing here is odd; what is, each says at its beginning.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>

#include "net/abi.h"

namespace lawful {

struct Comm;

struct Request {
  Comm* comm;
  uint8_t* data;
  uint64_t bytes;  // of a receive: those that there is room for, then those that came
  bool done = false;
};

struct Comm {
  int fd;
  bool sends;
  size_t held = 0;               // requests that were not seen done
  std::deque<Request*> queue{};  // what is not done, the oldest first
  uint64_t header = 0;           // the size of the message under way
  size_t moved = 0;              // of the header, then of the message
  bool has_header = false;
  int code = kNetSuccess;
};

struct Handle {
  uint16_t port;
};

struct Listener {
  int fd;
};

// Whether all of it has moved; the comm has an error where its peer has gone.
inline bool moves(Comm* comm, void* data, size_t bytes) {
  while (comm->moved < bytes) {
    auto* at = static_cast<uint8_t*>(data) + comm->moved;
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    const size_t left = bytes - comm->moved;
    const ssize_t n =
        comm->sends ? send(comm->fd, at, left, flags) : recv(comm->fd, at, left, flags);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0) {
      comm->code = kNetRemoteError;
      return false;
    }
    comm->moved += static_cast<size_t>(n);
  }
  comm->moved = 0;
  return true;
}

inline void progress(Comm* comm) {
  while (!comm->queue.empty() && comm->code == kNetSuccess) {
    Request* request = comm->queue.front();
    if (!comm->has_header) {
      if (comm->sends) comm->header = request->bytes;
      if (!moves(comm, &comm->header, sizeof comm->header)) return;
      comm->has_header = true;
      if (comm->header > request->bytes) comm->code = kNetInvalidUsage;
      if (comm->code != kNetSuccess) return;
    }
    if (!moves(comm, request->data, comm->header)) return;
    comm->has_header = false;
    request->bytes = comm->header;
    request->done = true;
    comm->queue.pop_front();
  }
}

inline sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline int listen_on(int device, void* handle, void** listen_comm) {
  if (device != 0) return kNetInvalidArgument;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, generic, &length) != 0) {
    close(fd);
    return kNetSystemError;
  }
  const Handle content{ntohs(address.sin_port)};
  memcpy(handle, &content, sizeof content);
  *listen_comm = new Listener{fd};
  return kNetSuccess;
}

inline int connect_to(int, void* handle, void** send_comm, NetDeviceHandle** = nullptr) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(static_cast<Handle*>(handle)->port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return kNetSystemError;
  }
  *send_comm = new Comm{fd, true};
  return kNetSuccess;
}

// Waits so long for somebody to connect: 0 not at all, -1 for ever.
inline int accept_within(int patience_ms, void* listen_comm, void** recv_comm) {
  pollfd ready{static_cast<Listener*>(listen_comm)->fd, POLLIN, 0};
  if (poll(&ready, 1, patience_ms) < 1) return kNetSuccess;
  *recv_comm = new Comm{accept4(ready.fd, nullptr, nullptr, SOCK_CLOEXEC), false};
  return kNetSuccess;
}

inline int reg_mr(void*, void* data, size_t, int type, void** mhandle) {
  if (type != kNetPtrHost) return kNetInvalidArgument;
  *mhandle = data;
  return kNetSuccess;
}

inline int dereg_mr(void*, void*) { return kNetSuccess; }

// `most`: requests of a comm.
inline int post(size_t most, void* pointer, void* data, uint64_t bytes, void** out) {
  auto* comm = static_cast<Comm*>(pointer);
  *out = nullptr;
  if (comm->code != kNetSuccess) return comm->code;
  if (comm->held == most) return kNetSuccess;
  ++comm->held;
  auto* request = new Request{comm, static_cast<uint8_t*>(data), bytes};
  comm->queue.push_back(request);
  *out = request;
  progress(comm);
  return kNetSuccess;
}

inline int test(void* pointer, int* done, int* bytes) {
  auto* request = static_cast<Request*>(pointer);
  Comm* comm = request->comm;
  progress(comm);
  *done = request->done ? 1 : 0;
  if (!request->done) return comm->code;
  if (bytes != nullptr) *bytes = static_cast<int>(request->bytes);
  --comm->held;
  delete request;
  return kNetSuccess;
}

inline int no_flush(void*, int, void**, int*, void**, void**) { return kNetInvalidUsage; }

inline int close_comm(void* pointer) {
  auto* comm = static_cast<Comm*>(pointer);
  for (Request* request : comm->queue) delete request;
  close(comm->fd);
  delete comm;
  return kNetSuccess;
}

inline int close_listen(void* pointer) {
  auto* listener = static_cast<Listener*>(pointer);
  close(listener->fd);
  delete listener;
  return kNetSuccess;
}

}  // namespace lawful
