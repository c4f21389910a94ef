// The engine as NIXL sees it. Nothing that is thrown passes here.
#include "library/nixl/backend.h"

#include <pthread.h>

#include <atomic>

#include "library/nixl/core.h"
#include "library/nixl/options.h"

namespace tcpx::nixl {
namespace {

// How many forks lie between this process and the one that loaded us.
std::atomic<unsigned> g_forks{0};
const int g_counts_forks = pthread_atfork(nullptr, nullptr, [] { ++g_forks; });

class TcpxBackend : public Backend {
 public:
  explicit TcpxBackend(const InitParams& init) : Backend(init) {
    try {
      core_ =
          std::make_unique<Core>(init.local_agent, read_options(params()), init.progress_thread);
      connection_info_ = core_->connection_info();
    } catch (const std::exception& error) {
      report(init.local_agent, std::string("the backend TCPX cannot be made: ") + error.what());
      init_failed_ = true;
    }
  }

  // A child of the process that made it has its sockets and its threads' locks, but not the
  // threads: whatever it closed would be its parent's.
  ~TcpxBackend() override {
    if (is_parents()) static_cast<void>(core_.release());
  }

  bool supports_remote() const override { return true; }
  bool supports_local() const override { return true; }
  bool supports_notif() const override { return true; }
  MemoryList supported_memories() const override {
    if (core_ && core_->may_take_gpu_memory()) return {kDram, kVram};
    return {kDram};
  }

  Status register_memory(const BlobDescriptor& memory, const Memory& kind,
                         Metadata*& out) override {
    return guarded([&] { return core_->register_memory(memory, kind, out); });
  }
  Status deregister_memory(Metadata* metadata) override {
    return guarded([&] {
      const auto* local = dynamic_cast<const LocalMetadata*>(metadata);
      if (local == nullptr) return kInvalidParam;
      const Status status = core_->deregister_memory(*local);
      if (status == kSuccess) delete metadata;  // else it is not ours to end
      return status;
    });
  }
  Status connect(const std::string& agent) override {
    return guarded([&] { return core_->connect(agent); });
  }
  Status disconnect(const std::string& agent) override {
    return guarded([&] {
      core_->disconnect(agent);
      return kSuccess;
    });
  }
  Status unload_metadata(Metadata* metadata) override {
    delete metadata;
    return kSuccess;
  }

  Status prepare(const Operation& operation, const MetaList& local, const MetaList& remote,
                 const std::string& agent, Request*& request, const PostOptions*) const override {
    return guarded([&] {
      std::unique_ptr<RequestHandle> handle;
      const Status status = core_->prepare(operation, local, remote, agent, handle);
      if (status == kSuccess) request = handle.release();
      return status;
    });
  }
  Status post(const Operation&, const MetaList&, const MetaList&, const std::string&,
              Request*& request, const PostOptions* options) const override {
    return guarded([&] { return core_->post(of(request), options); });
  }
  Status check(Request* request) const override {
    return guarded([&] { return core_->check(of(request)); });
  }
  Status release(Request* request) const override {
    return guarded([&] {
      const std::unique_ptr<Request> owned(request);
      core_->release(of(request));
      return kSuccess;
    });
  }

  Status public_data(const Metadata* metadata, std::string& out) const override {
    return guarded([&] {
      const auto* local = dynamic_cast<const LocalMetadata*>(metadata);
      if (local == nullptr) return kInvalidParam;
      out = write_region_info(info_of(*local->region));
      return kSuccess;
    });
  }
  Status connection_info(std::string& out) const override {
    out = connection_info_;
    return kSuccess;
  }
  Status load_connection_info(const std::string& agent, const std::string& info) override {
    return guarded([&] { return core_->load_connection_info(agent, info); });
  }
  Status load_remote_metadata(const BlobDescriptor& memory, const Memory&, const std::string& agent,
                              Metadata*& out) override {
    return guarded([&] {
      try {
        out = new RemoteMetadata(agent, read_region_info(memory.blob));
      } catch (const WireError& error) {
        return core_->refuse(kMismatch, "metadata of agent " + agent + ": " + error.what());
      }
      return kSuccess;
    });
  }
  Status load_local_metadata(Metadata* local, Metadata*& out) override {
    return guarded([&] {
      const auto* ours = dynamic_cast<const LocalMetadata*>(local);
      if (ours == nullptr) return kInvalidParam;
      out = new RemoteMetadata(local_agent_, info_of(*ours->region));
      return kSuccess;
    });
  }

  Status notifications(Notifications& out) override {
    return guarded([&] {
      core_->fetch(out);
      return kSuccess;
    });
  }
  Status notify(const std::string& agent, const std::string& text) const override {
    return guarded([&] { return core_->notify(agent, text); });
  }

 private:
  static RequestHandle& of(Request* request) { return *static_cast<RequestHandle*>(request); }
  static RegionInfo info_of(const Region& region) {
    return {region.id, reinterpret_cast<uint64_t>(region.data), region.bytes,
            region.on_gpu ? uint32_t{kVram} : uint32_t{kDram}};
  }

  bool is_parents() const { return g_forks.load(std::memory_order_relaxed) != made_at_; }

  template <typename Call>
  Status guarded(const Call& call) const {
    if (is_parents()) {
      report(local_agent_,
             "this agent is of the process that this one was forked from, which "
             "alone may use it: make one here");
      return kNotAllowed;
    }
    try {
      return static_cast<Status>(call());
    } catch (const std::exception& error) {
      return core_->refuse(kBackend, error.what());
    }
  }

  const unsigned made_at_ = g_forks.load(std::memory_order_relaxed);
  std::unique_ptr<Core> core_;
  std::string connection_info_;
};

}  // namespace

Backend* make_backend(const InitParams& init) { return new TcpxBackend(init); }

}  // namespace tcpx::nixl
