#include "engine/connections.h"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "engine/clock.h"
#include "engine/signals.h"
#include "net/logger.h"

namespace tcpx {
namespace {

void check(int code, const char* call, const std::string& what) {
  if (code == kNetSuccess) return;
  const auto lines = plugin_log::recent_lines();
  throw PluginError(call, code, what + (lines.empty() ? "" : "; the plugin said: " + lines.back()));
}

}  // namespace

std::string describe(const Comm& comm) {
  return (comm.direction == Direction::kSend ? "to rank " : "from rank ") +
         std::to_string(comm.peer) + ", lane " + std::to_string(comm.lane) + ", channel " +
         std::to_string(comm.channel);
}

Connections::Connections(Net& net, int device) : net_(net), device_(device) {
  NetProperties properties;
  check(net_.properties(device, &properties), "getProperties", "device " + std::to_string(device));
  unpacks_ =
      properties.device_type == kNetDeviceUnpack && properties.device_version == kNetUnpackVersion;
}

std::array<uint8_t, kNetHandleBytes> Connections::listen(int peer, int lane, int channel) {
  auto comm = std::make_unique<Comm>();
  comm->direction = Direction::kReceive;
  comm->peer = peer;
  comm->lane = lane;
  comm->channel = channel;
  const int64_t start = now_ns();
  check(net_.listen(device_, comm->handle.data(), &comm->listen_comm), "listen", describe(*comm));
  comm->listen_ns = now_ns() - start;
  comms_.push_back(std::move(comm));
  return comms_.back()->handle;
}

void Connections::add_send(int peer, int lane, int channel, const uint8_t* handle) {
  auto comm = std::make_unique<Comm>();
  comm->direction = Direction::kSend;
  comm->peer = peer;
  comm->lane = lane;
  comm->channel = channel;
  memcpy(comm->handle.data(), handle, kNetHandleBytes);
  comms_.push_back(std::move(comm));
}

bool Connections::advance(Comm& comm) {
  if (comm.direction == Direction::kSend) {
    NetDeviceHandle* none = nullptr;
    const int code = net_.connect(device_, comm.handle.data(), &comm.comm, &none);
    refused_ = code != kNetSuccess;
    check(code, "connect", describe(comm));
    return comm.comm != nullptr;
  }
  // A plugin that unpacks on the device writes into our block, also for host memory; any other
  // takes a non-NULL pointee as a request for device offload.
  NetDeviceHandle* handle = nullptr;
  if (unpacks_) {
    handle = reinterpret_cast<NetDeviceHandle*>(comm.device_block.data());
    handle->type = kNetDeviceUnpack;
    handle->version = kNetUnpackVersion;
  }
  const int code = net_.accept(comm.listen_comm, &comm.comm, &handle);
  refused_ = code != kNetSuccess;
  check(code, "accept", describe(comm));
  if (comm.comm != nullptr) comm.device_handle = handle;
  return comm.comm != nullptr;
}

void Connections::establish(double timeout_s) {
  if (refused_) throw std::logic_error("a connection was refused before");
  const auto before = tcp_socket_inodes();
  std::vector<Comm*> pending;
  for (const auto& comm : comms_) {
    if (comm->comm == nullptr) pending.push_back(comm.get());
  }
  const int64_t start = now_ns();
  const int64_t patience_ns = static_cast<int64_t>(timeout_s * 1e9);
  int64_t last_progress = start;
  while (!pending.empty()) {
    const size_t left = pending.size();
    pending.erase(std::remove_if(pending.begin(), pending.end(),
                                 [&](Comm* comm) {
                                   if (!advance(*comm)) return false;
                                   comm->establish_ns = now_ns() - start;
                                   return true;
                                 }),
                  pending.end());
    if (const int signal = stop_signal()) throw Interrupt(signal);
    const int64_t now = now_ns();
    if (pending.size() < left) {
      last_progress = now;
    } else if (now - last_progress > patience_ns) {
      std::string text = std::to_string(pending.size()) + " of " + std::to_string(comms_.size()) +
                         " connections did not come up within " +
                         std::to_string(timeout_s).substr(0, 5) + " s: ";
      for (size_t i = 0; i < std::min<size_t>(pending.size(), 4); ++i) {
        text += (i > 0 ? "; " : "") + describe(*pending[i]);
      }
      throw ConnectTimeout(text);
    } else {
      const timespec pause{0, 50'000};  // set-up waits for other processes: leave them the core
      nanosleep(&pause, nullptr);
    }
  }
  sockets_ = TcpSockets::opened_since(before);
  for (const auto& comm : comms_) {
    if (comm->listen_comm == nullptr) continue;
    check(net_.close_listen(comm->listen_comm), "closeListen", describe(*comm));
    comm->listen_comm = nullptr;
  }
}

void Connections::register_buffer(int buffer, uint8_t* data, size_t bytes, int type) {
  const size_t region = size_t{1} << kRegionShift;
  for (const auto& comm : comms_) {
    const int64_t start = now_ns();
    auto& handles = comm->mhandles[buffer];
    for (size_t at = 0; at < std::max<size_t>(bytes, 1); at += region) {
      void* mhandle = nullptr;
      const size_t covered = std::min(bytes - at, region + kMaxChunkBytes);
      check(net_.reg_mr(comm->comm, data + at, covered, type, &mhandle), "regMr",
            describe(*comm) + ", " + std::to_string(covered) + " bytes");
      handles.push_back(mhandle);
    }
    comm->register_ns += now_ns() - start;
  }
}

void Connections::close() {
  int first_code = kNetSuccess;
  const char* first_call = "";
  std::string first_what;
  const auto note = [&](int code, const char* call, const Comm& comm) {
    if (code == kNetSuccess || first_code != kNetSuccess) return;
    first_code = code;
    first_call = call;
    first_what = describe(comm);
  };
  for (const auto& comm : comms_) {
    if (comm->comm == nullptr) continue;
    for (auto& handles : comm->mhandles) {
      for (void* mhandle : handles) note(net_.dereg_mr(comm->comm, mhandle), "deregMr", *comm);
      handles.clear();
    }
    if (comm->direction == Direction::kSend) {
      note(net_.close_send(comm->comm), "closeSend", *comm);
    } else {
      note(net_.close_recv(comm->comm), "closeRecv", *comm);
    }
    comm->comm = nullptr;
  }
  comms_.clear();
  sockets_ = TcpSockets();  // their descriptors are others' now
  if (first_code != kNetSuccess) check(first_code, first_call, first_what);
}

Comm* Connections::find(Direction direction, int peer, int lane, int channel) const {
  for (const auto& comm : comms_) {
    if (comm->direction == direction && comm->peer == peer && comm->lane == lane &&
        comm->channel == channel) {
      return comm.get();
    }
  }
  return nullptr;
}

}  // namespace tcpx
