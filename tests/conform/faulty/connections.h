// Listeners and comms: how they are made and closed.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "devices.h"
#include "fault.h"
#include "messages.h"

namespace {

struct Handle {
  uint16_t port;
  int stage;
  int fd;
  int calls;
  uint64_t id;
};

struct Listener {
  int fd;
  uint64_t id;
  int device;
  int peer = -1;
  int calls = 0;
  bool accepted = false;
};

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int new_socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

int listen_on(void*, int device, void* handle, void** listen_comm) {
  if (!is_device(device)) return kNetInvalidArgument;
  if (fault("one-context") && g_outlived) return kNetInternalError;
  const int fd = new_socket();
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, generic, length) != 0 || listen(fd, 16) != 0 ||
      getsockname(fd, generic, &length) != 0) {
    return kNetSystemError;
  }
  const uint64_t id = uint64_t{ntohs(address.sin_port)} << 32 | static_cast<uint32_t>(getpid());
  const Handle content{ntohs(address.sin_port), 0, -1, 0, id};
  memset(handle, 0, fault("long-handle") ? kNetHandleBytes + 2 : kNetHandleBytes);
  memcpy(handle, &content, sizeof content);
  *listen_comm = new Listener{fd, id, device};
  return kNetSuccess;
}

Comm* opened(int fd, bool sends, uint64_t id) {
  auto* comm = new Comm{fd, sends};
  comm->id = id;
  const std::lock_guard<std::mutex> lock(g_opening);
  g_open.insert(comm);
  if (!sends) g_newest = comm;
  return comm;
}

int connect_to(void*, int, void* handle, void** send_comm, NetDeviceHandle** send_device) {
  static NetDeviceHandle given{};
  auto* content = static_cast<Handle*>(handle);
  if (fault("connect-refuses")) return kNetSystemError;
  if (fault("connect-hangs")) hang();
  if (fault("connect-impatient") && ++content->calls > kPatience) return kNetRemoteError;
  if (content->stage == 0) {
    content->fd = new_socket();
    const sockaddr_in address = loopback(content->port);
    if (connect(content->fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return kNetSystemError;
    }
    content->stage = 1;
  }
  char hello;
  if (recv(content->fd, &hello, 1, MSG_DONTWAIT) != 1) return kNetSuccess;
  *send_comm = opened(content->fd, true, content->id);
  if (fault("device-handle-given")) *send_device = &given;
  return kNetSuccess;
}

// One buffer for all, but for a fault.
void describe(Comm* comm, int device, NetDeviceHandle* handle) {
  static NetUnpackQueue queue{};
  static char buffers[kDevices];
  void* buffer = &buffers[fault("buffer-a-device") ? device % kDevices : 0];
  comm->block = {&queue, fault("buffer-a-comm") ? comm : buffer, ~uint64_t{0}};
  *handle = {kNetDeviceUnpack, kNetUnpackVersion, &comm->block, sizeof comm->block, 1};
}

int accept_from(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device) {
  auto* listener = static_cast<Listener*>(listen_comm);
  if (fault("accept-hangs")) hang();
  pollfd ready{listener->fd, POLLIN, 0};
  if (poll(&ready, 1, 0) < 1) {
    if (fault("accept-exits") && ++listener->calls > kPatience) exit(7);
    if (fault("accept-waits-on") && ++listener->calls > kPatience) hang();
    if (fault("accept-early") && ++listener->calls > kPatience) {
      *recv_comm = opened(new_socket(), false, listener->id);
    }
    return kNetSuccess;
  }
  const int fd = accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC);
  if (send(fd, "", 1, MSG_NOSIGNAL) != 1) return kNetSystemError;
  listener->accepted = true;
  Comm* comm = opened(fd, false, listener->id);
  if (unpacks()) describe(comm, listener->device, *recv_device);
  *recv_comm = comm;
  if (fault("name-changes")) g_name[0] = 'L';
  return kNetSuccess;
}

int close_comm(void* pointer) {
  auto* comm = static_cast<Comm*>(pointer);
  if (comm == nullptr) return kNetSuccess;
  const std::lock_guard<std::mutex> lock(g_opening);
  if (fault("close-order-hangs") && !comm->sends) {
    for (const Comm* other : g_open) {
      if (other->sends && other->id == comm->id) hang();
    }
  }
  if (fault("close-crashes") && !comm->sends) raise(SIGSEGV);
  if (fault("close-pending-crashes") && comm->held > 0 && comm->code == 0) raise(SIGSEGV);
  if (comm->sends) {
    const Header bye{0, kBye, 0};
    send(comm->fd, &bye, sizeof bye, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (!fault("leaks-descriptors")) close(comm->fd);
  g_open.erase(comm);
  delete comm;
  return kNetSuccess;
}

int close_listen(void* listen_comm) {
  auto* listener = static_cast<Listener*>(listen_comm);
  if (fault("close-unused-fails") && !listener->accepted) return kNetInternalError;
  close(listener->fd);
  delete listener;
  return kNetSuccess;
}

}  // namespace
