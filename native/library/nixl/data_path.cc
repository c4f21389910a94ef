#include "library/nixl/data_path.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tcpx_p2p/session.h"

namespace tcpx::nixl {
namespace {

namespace p2p = tcpx_p2p;

p2p::Options options_of(const PathOptions& from) {
  p2p::Options options;
  options.plugin = from.plugin;
  options.chunk_bytes = from.chunk_bytes;
  options.gpu = from.gpu;
  options.accept_early = false;  // a remote may refuse us, and more than once
  return options;
}

class SessionPath : public DataPath {
 public:
  explicit SessionPath(const PathOptions& options)
      : session_(options.device, options.channels, options_of(options)) {}

  std::string plugin_name() const override { return session_.plugin_name(); }
  bool takes_gpu_memory() const override {
    const auto kinds = session_.memory_kinds();
    return std::find(kinds.begin(), kinds.end(), p2p::MemoryKind::kCuda) != kinds.end();
  }

  std::string listen(const std::string& remote) override { return session_.listen(remote); }
  void join(const std::string& remote, const std::string& info) override {
    session_.load_remote_conn_info(remote, info, false);
  }
  bool begun(const std::string& remote) override { return session_.connects_begun(remote); }
  void accept(const std::string& remote) override { session_.begin_accepts(remote); }

  PathStage stage(const std::string& remote) override {
    switch (session_.remote_stage(remote)) {
      case p2p::RemoteStage::kNew:
      case p2p::RemoteStage::kConnecting:
        return PathStage::kConnecting;
      case p2p::RemoteStage::kConnected:
        return PathStage::kConnected;
      default:
        return PathStage::kFailed;
    }
  }
  std::string error(const std::string& remote) override { return session_.remote_error(remote); }

  void close(const std::string& remote) override {
    transfers_.erase(remote);
    try {
      session_.close_remote(remote);
    } catch (const p2p::Error&) {
      // It is given up, whatever the plugin says.
    }
  }

  uint64_t register_memory(uint8_t* data, uint64_t bytes, bool on_gpu) override {
    return session_.register_memory(data, bytes,
                                    on_gpu ? p2p::MemoryKind::kCuda : p2p::MemoryKind::kHost);
  }
  void deregister_memory(uint64_t memory) override { session_.deregister_memory(memory); }

  uint64_t post(const std::string& remote, bool sends, uint64_t memory, uint64_t offset,
                uint64_t bytes) override {
    p2p::Transfer transfer = session_.create_transfer(remote);
    if (sends) {
      transfer.post_send(memory, offset, bytes);
    } else {
      transfer.post_recv(memory, offset, bytes);
    }
    const uint64_t number = transfer.number();
    transfers_[remote].emplace(number, std::move(transfer));
    return number;
  }

  MessageStage message(const std::string& remote, uint64_t number) override {
    switch (transfers_.at(remote).at(number).stage()) {
      case p2p::TransferStage::kComplete:
        return MessageStage::kComplete;
      case p2p::TransferStage::kActive:
        return MessageStage::kActive;
      default:
        return MessageStage::kFailed;
    }
  }

  void forget(const std::string& remote, uint64_t number) override {
    transfers_.at(remote).erase(number);
  }

  bool progress() override { return session_.progress(); }
  bool idle() const override { return session_.idle(); }

 private:
  p2p::Session session_;
  std::map<std::string, std::map<uint64_t, p2p::Transfer>> transfers_;  // by remote and number
};

}  // namespace

std::unique_ptr<DataPath> make_data_path(const PathOptions& options) {
  return std::make_unique<SessionPath>(options);
}

}  // namespace tcpx::nixl
