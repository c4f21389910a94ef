#include "nixl/data_path.h"

#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "net/library.h"

namespace tcpx::nixl {
namespace {

// A plugin begins once a process, and stays.
Plugin& shared_plugin(const std::string& path) {
  static std::mutex mutex;
  static auto* plugins = new std::map<std::string, std::unique_ptr<Plugin>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Plugin>& plugin = (*plugins)[path];
  if (plugin == nullptr) {
    auto loaded = std::make_unique<Plugin>(path);
    loaded->init();
    plugin = std::move(loaded);
  }
  return *plugin;
}

struct Remote {
  std::unique_ptr<Session> session;
  std::map<uint64_t, int> memories;  // the path's number to the session's
  uint64_t probe = 0;                // a transfer without messages: what polls connections
  bool joined = false;
  PathStage stage = PathStage::kConnecting;
  std::string error;
  std::set<uint64_t> active;
};

class SessionPath : public DataPath {
 public:
  explicit SessionPath(const PathOptions& options)
      : options_(options), plugin_(shared_plugin(options.plugin)) {
    int devices = 0;
    const int code = plugin_.net().devices(&devices);
    if (code != kNetSuccess) throw PluginError("devices", code, plugin_.path());
    if (options.device < 0 || options.device >= devices) {
      throw std::runtime_error("device " + std::to_string(options.device) + ": " +
                               plugin_.net().name() + " has " + std::to_string(devices));
    }
    NetProperties properties;
    if (plugin_.net().properties(options.device, &properties) == kNetSuccess) {
      takes_gpu_memory_ = (properties.ptr_support & kNetPtrCuda) != 0;
    }
  }

  std::string plugin_name() const override { return plugin_.net().name(); }
  bool takes_gpu_memory() const override { return takes_gpu_memory_; }

  std::string listen(const std::string& name) override {
    Remote& remote = remotes_[name];
    TransferLimits limits;
    limits.channels = options_.channels;
    limits.chunk_bytes = options_.chunk_bytes;
    remote.session =
        std::make_unique<Session>(plugin_.net(), options_.device, limits, options_.gpu);
    remote.probe = remote.session->create();
    std::string info;
    for (int channel = 0; channel < options_.channels; ++channel) {
      const auto handle = remote.session->listen(channel);
      info.append(reinterpret_cast<const char*>(handle.data()), handle.size());
    }
    return info;
  }

  void join(const std::string& name, const std::string& info) override {
    if (info.size() != size_t{kNetHandleBytes} * options_.channels) {
      throw std::runtime_error("handles of " + std::to_string(info.size()) + " bytes");
    }
    Remote& remote = remotes_.at(name);
    for (int channel = 0; channel < options_.channels; ++channel) {
      const char* handle = info.data() + channel * kNetHandleBytes;
      remote.session->add_send(channel, reinterpret_cast<const uint8_t*>(handle));
    }
    remote.joined = true;
  }

  PathStage stage(const std::string& name) override { return remotes_.at(name).stage; }
  std::string error(const std::string& name) override { return remotes_.at(name).error; }

  void close(const std::string& name) override {
    const auto found = remotes_.find(name);
    if (found == remotes_.end()) return;
    try {
      found->second.session->close();
    } catch (const std::exception&) {
      // The remote is given up, whatever the plugin says.
    }
    remotes_.erase(found);
  }

  uint64_t register_memory(uint8_t* data, uint64_t bytes, bool on_gpu) override {
    memories_.emplace(next_memory_, Memory{data, bytes, on_gpu ? kNetPtrCuda : kNetPtrHost});
    return next_memory_++;
  }

  void deregister_memory(uint64_t memory) override {
    for (auto& [name, remote] : remotes_) {
      const auto found = remote.memories.find(memory);
      if (found == remote.memories.end()) continue;
      remote.session->deregister_memory(found->second);
      remote.memories.erase(found);
    }
    memories_.erase(memory);
  }

  uint64_t post(const std::string& name, bool sends, uint64_t memory, uint64_t offset,
                uint64_t bytes) override {
    Remote& remote = remotes_.at(name);
    const auto known = remote.memories.find(memory);
    int id;
    if (known != remote.memories.end()) {
      id = known->second;
    } else {  // with the comms of a remote when a message first names it
      const Memory& what = memories_.at(memory);
      id = remote.session->register_memory(what.data, what.bytes, what.type);
      remote.memories.emplace(memory, id);
    }
    const uint64_t number = remote.session->create();
    remote.session->post(number, sends ? Direction::kSend : Direction::kReceive, id, offset, bytes);
    remote.active.insert(number);
    return number;
  }

  MessageStage message(const std::string& name, uint64_t number) override {
    Remote& remote = remotes_.at(name);
    const TransferState state = remote.session->poll(number);
    if (state == TransferState::kFailed) fail(remote);
    return state == TransferState::kComplete ? MessageStage::kComplete
           : state == TransferState::kFailed ? MessageStage::kFailed
                                             : MessageStage::kActive;
  }

  void forget(const std::string& name, uint64_t number) override {
    Remote& remote = remotes_.at(name);
    remote.session->release(number);
    remote.active.erase(number);
  }

  // Messages make progress when they are asked for; this is for connections that come up.
  void progress() override {
    for (auto& [name, remote] : remotes_) {
      if (remote.stage == PathStage::kConnecting && remote.joined) connect(remote);
    }
  }

 private:
  struct Memory {
    uint8_t* data;
    uint64_t bytes;
    int type;
  };

  void connect(Remote& remote) {
    try {
      remote.session->establish(0, std::nullopt);
      remote.stage = PathStage::kConnected;
    } catch (const ConnectTimeout&) {
      // Not yet.
    } catch (const std::exception& error) {
      remote.stage = PathStage::kFailed;
      remote.error = error.what();
    }
  }

  void fail(Remote& remote) {
    if (remote.stage == PathStage::kFailed) return;
    remote.stage = PathStage::kFailed;
    const TransferFault fault = remote.session->fault();
    remote.error =
        std::string("plugin call ") + fault.call + " returned " + std::to_string(fault.code);
  }

  const PathOptions options_;
  Plugin& plugin_;
  bool takes_gpu_memory_ = false;
  std::map<std::string, Remote> remotes_;
  std::map<uint64_t, Memory> memories_;
  uint64_t next_memory_ = 1;
};

}  // namespace

std::unique_ptr<DataPath> make_data_path(const PathOptions& options) {
  return std::make_unique<SessionPath>(options);
}

}  // namespace tcpx::nixl
