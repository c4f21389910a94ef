#include "engine/connections.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "cuda/gpu.h"
#include "engine/clock.h"
#include "engine/leftovers.h"
#include "engine/signals.h"
#include "engine/watch.h"
#include "net/logger.h"
#include "net/plugin_call.h"
#include "net/plugin_error.h"

namespace tcpx {
namespace {

// NCCL polls a connect once before it enters an accept. A plugin that needs a few polls until its
// peer hears of the connect has them here.
constexpr int kFirstConnects = 4;

}  // namespace

Connections::Connections(Net& net, int device, int gpu) : net_(net), device_(device), gpu_(gpu) {
  const GpuCurrent current(gpu >= 0 ? &use_gpu(gpu) : nullptr);
  NetProperties properties;
  check_call(net_.properties(device, &properties), "getProperties",
             "device " + std::to_string(device));
  shares_registrations_ = properties.reg_is_global != 0;
  unpacks_ =
      properties.device_type == kNetDeviceUnpack && properties.device_version == kNetUnpackVersion;
}

// Whichever thread calls us, and whatever else it used before.
void Connections::select_gpu() const {
  if (gpu_ >= 0) use_gpu(gpu_).select();
}

std::array<uint8_t, kNetHandleBytes> Connections::listen(int peer, int lane, int channel) {
  select_gpu();
  auto comm = std::make_unique<Comm>();
  comm->direction = Direction::kReceive;
  comm->unpacks = unpacks_;
  comm->peer = peer;
  comm->lane = lane;
  comm->channel = channel;
  if (comms_.empty()) warnings_before_ = plugin_log::warnings();
  open_listener(net_, device_, *comm);
  comms_.push_back(std::move(comm));
  return comms_.back()->handle;
}

void Connections::add_send(int peer, int lane, int channel, const uint8_t* handle) {
  auto comm = std::make_unique<Comm>();
  comm->direction = Direction::kSend;
  comm->peer = peer;
  comm->lane = lane;
  comm->channel = channel;
  if (comms_.empty()) warnings_before_ = plugin_log::warnings();
  comm->began_ns = now_ns();
  memcpy(comm->handle.data(), handle, kNetHandleBytes);
  comms_.push_back(std::move(comm));
  connect_rounds_ = 0;
}

void Connections::open(Comm& comm) {
  comm.refused = refused_ = true;  // unless it returns: an exception of the plugin's is a refusal
  const int code = open_comm(net_, device_, comm);
  comm.refused = refused_ = code != kNetSuccess;
  check_call(code, comm.direction == Direction::kSend ? "connect" : "accept", describe(comm),
             comm.began_ns);
}

bool Connections::advance(Comm& comm) {
  open(comm);
  if (comm.comm == nullptr) return false;
  if (comm.direction == Direction::kReceive) fetch_queue(comm);
  return true;
}

// Once: where the queue is does not change while the comm lives.
void Connections::fetch_queue(Comm& comm) const {
  const NetUnpackDevice* queue = comm.unpack_queue();
  if (gpu_ < 0 || queue == nullptr || gpu_of(queue) < 0) return;
  NetUnpackDevice fetched;
  copy_now(reinterpret_cast<CudaAddress>(&fetched), reinterpret_cast<CudaAddress>(queue),
           sizeof(fetched), "the descriptor queue " + describe(comm));
  comm.fetched_queue = fetched;
}

bool Connections::poll() {
  const bool connected = poll(Direction::kSend);
  return poll(Direction::kReceive) || connected;
}

bool Connections::poll(Direction direction) {
  if (refused_) throw std::logic_error("a connection was refused before");
  select_gpu();
  if (direction == Direction::kSend && !begun()) ++connect_rounds_;
  bool moved = false;
  for (const auto& comm : comms_) {
    if (comm->comm != nullptr || comm->direction != direction) continue;
    if (comm->first_poll_ns == 0) comm->first_poll_ns = now_ns();
    if (!advance(*comm)) continue;
    comm->establish_ns = now_ns() - comm->first_poll_ns;
    moved = true;
  }
  return moved;
}

bool Connections::begun() const {
  return connect_rounds_ >= kFirstConnects || pending(Direction::kSend) == 0;
}

size_t Connections::pending(std::optional<Direction> direction) const {
  return std::count_if(comms_.begin(), comms_.end(), [&](const auto& comm) {
    return comm->comm == nullptr && (!direction || comm->direction == *direction);
  });
}

std::string Connections::describe_pending(const std::string& how) const {
  std::string names;
  size_t pending = 0;
  for (const auto& comm : comms_) {
    if (comm->comm != nullptr) continue;
    if (++pending <= 4) names += (pending > 1 ? "; " : "") + describe(*comm);
  }
  return std::to_string(pending) + " of " + std::to_string(comms_.size()) + " connections " + how +
         ": " + names;
}

std::string Connections::describe_late(double timeout_s) const {
  const std::string limit = std::to_string(timeout_s).substr(0, 5) + " s";
  return describe_pending("did not come up within " + limit) +
         plugin_log::quote(plugin_log::warnings() > warnings_before_ ? plugin_log::last_warning()
                                                                     : plugin_log::kNoPlace);
}

void Connections::close_listeners() {
  for (const auto& comm : comms_) {
    if (comm->listen_comm == nullptr || comm->comm == nullptr) continue;  // an accept is pending
    const plugin_call::About about(comm.get(), words_of);
    check_call(net_.close_listen(comm->listen_comm), "closeListen", describe(*comm));
    comm->listen_comm = nullptr;
  }
}

void Connections::establish(double timeout_s, const WaitHook& hook, const BegunHook& all_begun) {
  const auto before = tcp_socket_inodes();
  const int64_t patience_ns = static_cast<int64_t>(timeout_s * 1e9);
  int64_t last_progress = now_ns();
  int64_t last_hook = last_progress;
  bool accepts = false;
  while (pending() > 0) {
    bool moved = poll(Direction::kSend);
    if (!accepts && (unpacks_ || begun())) {
      // A plugin that unpacks does not block: nothing is gained by a word of the others.
      accepts = unpacks_ || !all_begun || all_begun();
      moved |= accepts;
    }
    if (accepts) moved |= poll(Direction::kReceive);
    if (const int signal = stop_signal()) throw Interrupt(signal);
    const int64_t now = now_ns();
    if (moved) {
      last_progress = now;
    } else if (watch::running_since(last_progress) > patience_ns) {
      throw ConnectTimeout(describe_late(timeout_s));
    } else if (hook && now - last_hook > kWaitHookNs) {
      hook();
      last_hook = now;
    } else if (begun()) {
      const timespec pause{0, 50'000};  // set-up waits for other processes: leave them the core
      nanosleep(&pause, nullptr);
    }
  }
  sockets_ = TcpSockets::opened_since(before);
  close_listeners();
}

void Connections::register_buffer(int buffer, uint8_t* data, size_t bytes, Registration how) {
  select_gpu();
  registered_.at(buffer) = how;
  std::vector<void*> added;
  for (const auto& comm : comms_) {
    const int64_t start = now_ns();
    comm->borrows_mhandles = shares_registrations_ && comm != comms_.front();
    if (!comm->borrows_mhandles) added = register_regions(net_, *comm, data, bytes, how);
    comm->mhandles[buffer].insert(comm->mhandles[buffer].end(), added.begin(), added.end());
    comm->register_ns += now_ns() - start;
  }
}

void Connections::stage(Comm& comm, size_t bytes, int buffer) {
  if (comm.staging != nullptr && comm.staging->bytes() >= bytes) return;
  select_gpu();
  const plugin_call::About about(&comm, words_of);
  for (void* mhandle : comm.staging_mhandles) {
    check_call(net_.dereg_mr(comm.comm, mhandle), "deregMr", describe(comm));
  }
  comm.staging_mhandles.clear();
  const Registration how = registered_.at(buffer);
  comm.staging = std::make_unique<Staging>(bytes, how.type == kNetPtrCuda ? gpu_ : -1);
  comm.staging_mhandles =
      register_regions(net_, comm, comm.staging->data(), comm.staging->bytes(), how);
}

void Connections::close(Leftovers* leftovers) {
  select_gpu();
  int first_code = kNetSuccess;
  const char* first_call = "";
  std::string first_what;
  const auto note = [&](int code, const char* call, const Comm& comm) {
    if (code == kNetSuccess || first_code != kNetSuccess) return;
    first_code = code;
    first_call = call;
    first_what = describe(comm) + plugin_log::quote_call();
  };
  std::vector<std::unique_ptr<Comm>> under_way;
  for (auto& comm : comms_) {
    if (comm->comm == nullptr && comm->first_poll_ns != 0 && !comm->refused) {
      under_way.push_back(std::move(comm));
      continue;
    }
    const plugin_call::About about(comm.get(), words_of);
    if (comm->listen_comm != nullptr) {
      note(net_.close_listen(comm->listen_comm), "closeListen", *comm);
    }
    if (comm->comm == nullptr) continue;
    for (auto& handles : comm->mhandles) {
      if (comm->borrows_mhandles) handles.clear();
      for (void* mhandle : handles) note(net_.dereg_mr(comm->comm, mhandle), "deregMr", *comm);
      handles.clear();
    }
    for (void* mhandle : comm->staging_mhandles) {
      note(net_.dereg_mr(comm->comm, mhandle), "deregMr", *comm);
    }
    comm->staging_mhandles.clear();
    if (comm->direction == Direction::kSend) {
      note(net_.close_send(comm->comm), "closeSend", *comm);
    } else {
      note(net_.close_recv(comm->comm), "closeRecv", *comm);
    }
    comm->comm = nullptr;
  }
  comms_.clear();
  if (leftovers != nullptr) leftovers->take(std::move(under_way));
  sockets_ = TcpSockets();  // their descriptors are others' now
  if (first_code != kNetSuccess) throw PluginError(first_call, first_code, first_what);
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
