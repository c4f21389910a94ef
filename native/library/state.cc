#include "library/state.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "cuda/driver.h"
#include "engine/clock.h"
#include "library/outlived.h"
#include "library/times.h"
#include "library/words.h"
#include "net/logger.h"

namespace tcpx_p2p {
namespace {

constexpr int kMaxChannels = 1024;
constexpr int kRequestsOfV6 = 8;  // what NCCL keeps to with a plugin of that table
constexpr size_t kMostLeftovers = 256;
constexpr int64_t kLeftoversPatienceNs = 1'000'000'000;  // at the end, without one's end

std::string number(double value) { return seconds_text(value); }

void require(bool right, const std::string& text) {
  if (!right) throw UsageError(Status::kInvalidArgument, text);
}

tcpx::TransferLimits limits_of(const Options& options, int channels, int abi) {
  tcpx::TransferLimits limits;
  limits.channels = channels;
  limits.chunk_bytes = options.chunk_bytes;
  limits.window_send = options.window_send;
  limits.window_receive = options.window_receive;
  limits.alone = options.progress == Progress::kThread;
  if (abi <= 6) {
    limits.window_send = std::min(limits.window_send, kRequestsOfV6);
    limits.window_receive = std::min(limits.window_receive, kRequestsOfV6);
  }
  return limits;
}

void check_options(const Options& options, int channels) {
  require(
      channels >= 1 && channels <= kMaxChannels,
      "channels (" + std::to_string(channels) + ") is not 1 to " + std::to_string(kMaxChannels));
  require(options.chunk_bytes >= 1 && options.chunk_bytes <= tcpx::kMaxChunkBytes,
          "chunk_bytes (" + std::to_string(options.chunk_bytes) + ") is not 1 to " +
              std::to_string(tcpx::kMaxChunkBytes));
  for (const auto& [name, window] : {std::make_pair("window_send", options.window_send),
                                     std::make_pair("window_receive", options.window_receive)}) {
    require(window >= 1 && window <= kNetMaxRequests,
            std::string(name) + " (" + std::to_string(window) + ") is not 1 to 16");
  }
  for (const double seconds : {options.connect_timeout_s, options.stall_timeout_s}) {
    require(seconds >= 0, "a timeout of the options (" + number(seconds) + ") is negative");
  }
  require(options.gpu >= -1, "gpu (" + std::to_string(options.gpu) + ") is not -1 or more");
  const int unpack = static_cast<int>(options.unpack);
  require(unpack >= 0 && unpack <= 2, "unpack (" + std::to_string(unpack) + ") is not 0 to 2");
  const int progress = static_cast<int>(options.progress);
  require(progress == 0 || progress == 1,
          "progress (" + std::to_string(progress) + ") is not 0 or 1");
}

}  // namespace

SessionState::SessionState(PluginUse plugin, int device, int channels, const Options& options)
    : plugin_(std::move(plugin)),
      device_(device),
      channels_(channels),
      options_(options),
      owner_(getpid()),
      leftovers_(std::make_shared<tcpx::Leftovers>(plugin_.plugin->net(), device, options.gpu)),
      snapshot_(std::make_shared<const Remotes>()) {
  check_options(options, channels);
  tcpx::Net& net = plugin_.plugin->net();
  limits_ = limits_of(options, channels, net.abi());
  limits_.tells_sizes = tells_sizes(*plugin_.plugin);
  int devices = 0;
  if (const int code = net.devices(&devices); code != kNetSuccess) {
    throw FatalError(Status::kSetupFailed, tcpx::PluginError("devices", code, "").what());
  }
  require(device >= 0 && device < devices, "device (" + std::to_string(device) +
                                               ") is not one of the plugin's " +
                                               std::to_string(devices));
  tcpx::NetProperties properties;
  if (const int code = net.properties(device, &properties); code != kNetSuccess) {
    throw FatalError(Status::kSetupFailed, tcpx::PluginError("getProperties", code, "").what());
  }
  takes_cuda_ = options.gpu >= 0 && (properties.ptr_support & kNetPtrCuda) != 0;
  require(options.gpu < 0 || takes_cuda_, "gpu (" + std::to_string(options.gpu) + "): plugin " +
                                              net.name() + " does not take memory of GPUs");
  if (threaded()) thread_ = std::thread([this] { run(); });
}

SessionState::~SessionState() {
  try {
    close();
  } catch (const std::exception&) {
    // Nobody is left to be told; close() tells.
  }
  if (getpid() != owner_ && thread_.joinable()) {
    new std::thread(std::move(thread_));  // it is the parent's: here there is none to be joined
  }
}

std::string SessionState::closed_text(const RemoteState& remote) const {
  const bool all = closed_ || remote.name().empty();
  return (all ? "the session" : "remote '" + remote.name() + "'") + std::string(" was closed");
}

void SessionState::require_open() const {
  if (closed_) throw UsageError(Status::kClosed, "the session is closed: make a new one");
}

// --- Remotes

Remote SessionState::look_for(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = remotes_.find(name);
  return found == remotes_.end() ? nullptr : found->second;
}

Remote SessionState::find_remote(const std::string& name) const {
  require_open();
  if (Remote found = look_for(name)) return found;
  std::string known;
  for (const std::string& each : remotes()) known += (known.empty() ? "" : ", ") + each;
  throw UsageError(Status::kUnknownRemote, "no remote is known as '" + name +
                                               "' (known: " + (known.empty() ? "none" : known) +
                                               "): listen and load_remote_conn_info name one");
}

Remote SessionState::name_remote(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require_open();
  Remote& remote = remotes_[name];
  if (remote == nullptr) {
    try {
      remote = std::make_shared<RemoteState>(
          name, plugin_.plugin->net(), device_, limits_, options_.gpu,
          static_cast<tcpx::UnpackMode>(options_.unpack), leftovers_.get());
      remote->link().take_accepts(options_.accept_early);
      for (const auto& [id, memory] : memories_) {
        remote->link().add_memory(id, memory.data, memory.registered, memory.type,
                                  options_.register_lazily);
      }
    } catch (const std::exception& error) {
      remotes_.erase(name);
      throw FatalError(Status::kSetupFailed, error.what());
    }
    update_snapshot();
  }
  return remote;
}

std::vector<std::string> SessionState::remotes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, remote] : remotes_) names.push_back(name);
  return names;
}

void SessionState::update_snapshot() {
  auto all = std::make_shared<Remotes>();
  for (const auto& [name, remote] : remotes_) all->push_back(remote);
  snapshot_ = std::move(all);
}

std::shared_ptr<const SessionState::Remotes> SessionState::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return snapshot_;
}

void SessionState::require_few_leftovers() const {
  const size_t count = leftovers_->count() + outlived::count();
  if (count < kMostLeftovers) return;
  throw FatalError(Status::kSetupFailed,
                   std::to_string(count) +
                       " connections that were given up have not ended: the plugin still waits for "
                       "their peers; make progress until they have");
}

ConnInfo SessionState::info_of(std::vector<Handle> handles) const {
  ConnInfo info;
  info.plugin = plugin_.plugin->net().name();
  info.chunk_bytes = options_.chunk_bytes;
  info.wire_chunk_bytes = plugin_.wire_chunk_bytes;
  info.handles = std::move(handles);
  return info;
}

std::string SessionState::listen(const std::string& name) {
  const Remote remote = name_remote(name);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!remote->info.empty()) return remote->info;
  std::vector<Handle> handles;
  require_few_leftovers();
  try {
    for (int channel = 0; channel < channels_; ++channel) {
      handles.push_back(remote->link().listen(channel));
    }
  } catch (const tcpx::SessionClosed&) {
    throw UsageError(Status::kClosed, closed_text(*remote));
  } catch (const std::exception& error) {
    throw FatalError(Status::kSetupFailed, remote->prefix() + error.what());
  }
  remote->info = encode(info_of(std::move(handles)));
  remote->listens = true;
  wake();
  return remote->info;
}

void SessionState::load_remote_conn_info(const std::string& name, const std::string& bytes,
                                         bool accepts) {
  require_open();
  if (const Remote known = look_for(name); known != nullptr && known->loaded) {
    throw UsageError(Status::kAlreadyDone,
                     known->prefix() + "the peer's connection info was loaded before");
  }
  const ConnInfo info = decode(bytes);
  require_equal(info_of(std::vector<Handle>(channels_)), info);
  require_few_leftovers();
  const Remote remote = name_remote(name);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (remote->loaded) {
    throw UsageError(Status::kAlreadyDone,
                     remote->prefix() + "the peer's connection info was loaded before");
  }
  try {
    for (int channel = 0; channel < channels_; ++channel) {
      remote->link().add_send(channel, info.handles[channel].data());
    }
  } catch (const tcpx::SessionClosed&) {
    throw UsageError(Status::kClosed, closed_text(*remote));
  }
  remote->loaded = true;
  if (accepts) remote->link().take_accepts(true);
  wake();
}

void SessionState::accept(const std::string& name, double timeout_s) {
  const Remote remote = find_remote(name);
  if (!remote->listens) {
    throw UsageError(
        Status::kOutOfOrder,
        remote->prefix() + "accept() before listen(): the peer cannot know where to connect");
  }
  if (remote->accepted) {
    throw UsageError(Status::kAlreadyDone, remote->prefix() + "the peer was accepted before");
  }
  await(*remote, tcpx::Direction::kReceive, timeout_s);
  remote->accepted = true;
}

void SessionState::connect(const std::string& name, double timeout_s) {
  const Remote remote = find_remote(name);
  if (!remote->loaded) {
    throw UsageError(
        Status::kOutOfOrder,
        remote->prefix() + "connect() before load_remote_conn_info(): the peer is not known");
  }
  if (remote->connected) {
    throw UsageError(Status::kAlreadyDone, remote->prefix() + "the peer was connected to before");
  }
  await(*remote, tcpx::Direction::kSend, timeout_s);
  remote->connected = true;
}

void SessionState::establish(const std::string& name, double timeout_s) {
  const Remote remote = find_remote(name);
  if (!remote->listens || !remote->loaded) {
    throw UsageError(
        Status::kOutOfOrder,
        remote->prefix() + "establish() needs listen() and load_remote_conn_info() before it");
  }
  await(*remote, std::nullopt, timeout_s);
  remote->accepted = remote->connected = true;
}

void SessionState::await(RemoteState& remote, std::optional<tcpx::Direction> direction,
                         double timeout_s) {
  remote.require_alive();
  if (direction != tcpx::Direction::kSend) remote.link().take_accepts(true);
  const double patience = patience_s(timeout_s, options_.connect_timeout_s);
  try {
    if (threaded()) {
      await_thread(remote, direction, in_ns(patience));
    } else {
      remote.link().establish(patience, direction, options_.while_waiting);
    }
  } catch (const tcpx::ConnectTimeout& late) {
    throw TimeoutError(Status::kTimedOut, remote.prefix() + late.what());
  } catch (const tcpx::SessionClosed&) {
    throw UsageError(Status::kClosed, closed_text(remote) + " while it was waited for");
  } catch (const tcpx::PluginError& refusal) {
    throw FatalError(Status::kSetupFailed, remote.prefix() + refusal.what());
  } catch (const tcpx::CudaError& refusal) {
    throw FatalError(Status::kSetupFailed, remote.prefix() + refusal.what());
  }
}

void SessionState::close_remote(const std::string& name) {
  Remote remote;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = remotes_.find(name);
    if (found == remotes_.end()) return;
    remote = std::move(found->second);
    remotes_.erase(found);
    update_snapshot();
  }
  try {
    remote->close();
  } catch (const tcpx::CudaError& error) {
    throw FatalError(Status::kGpuFailed, remote->prefix() + error.what());
  } catch (const std::exception& error) {
    throw FatalError(Status::kPluginFailed, remote->prefix() + error.what());
  }
}

void SessionState::close() {
  if (getpid() != owner_) return;  // of a forked child: connections and thread are its parent's
  if (closed_.exchange(true)) return;
  if (thread_.joinable()) {
    {
      const std::lock_guard<std::mutex> lock(wait_mutex_);
      stops_ = true;
    }
    wanted_.notify_all();
    thread_.join();
  }
  moved_.notify_all();
  std::exception_ptr first;
  for (const std::string& name : remotes()) {
    try {
      close_remote(name);
    } catch (const std::exception&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  leftovers_->finish(kLeftoversPatienceNs);
  const bool stays = !plugin_.finalizes && plugin_.plugin.use_count() > 0;
  if (stays && leftovers_->count() > 0) outlived::add(plugin_.plugin, leftovers_);
  if (plugin_.finalizes) {
    try {
      plugin_.plugin->finalize();
    } catch (const std::exception& error) {
      if (first == nullptr) {
        first = std::make_exception_ptr(FatalError(Status::kPluginFailed, error.what()));
      }
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace tcpx_p2p
