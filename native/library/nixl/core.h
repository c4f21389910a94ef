// The engine without NIXL's types of classes: links, memory, requests, and who drives them.
//
// A caller's check and fetch make progress. If NIXL wants a progress thread, one makes progress
// between them, and sleeps on the control streams while nothing is under way. One lock guards all;
// no call waits for the network but deregister.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "library/nixl/abi.h"
#include "library/nixl/initiator.h"
#include "library/nixl/listener.h"
#include "library/nixl/target.h"
#include "library/nixl/transfer.h"

namespace tcpx::nixl {

class LocalMetadata : public Metadata {
 public:
  explicit LocalMetadata(std::shared_ptr<Region> of) : Metadata(true), region(std::move(of)) {}
  const std::shared_ptr<Region> region;
};

class RemoteMetadata : public Metadata {
 public:
  RemoteMetadata(std::string of, const RegionInfo& from)
      : Metadata(false), agent(std::move(of)), info(from) {}
  const std::string agent;
  const RegionInfo info;
};

class Core {
 public:
  // Throws std::exception with what is wrong.
  Core(const std::string& agent, const Options& options, bool with_thread);
  ~Core();

  bool may_take_gpu_memory() const;
  Status register_memory(const Descriptor& memory, Memory kind, Metadata*& out);
  Status deregister_memory(const LocalMetadata& metadata);

  std::string connection_info() const;
  Status load_connection_info(const std::string& agent, const std::string& info);
  Status connect(const std::string& agent);
  void disconnect(const std::string& agent);

  Status prepare(Operation operation, const MetaList& local, const MetaList& remote,
                 const std::string& agent, std::unique_ptr<RequestHandle>& out);
  Status post(RequestHandle& request, const PostOptions* options);
  Status check(RequestHandle& request);
  void release(RequestHandle& request);

  void fetch(Notifications& out);
  Status notify(const std::string& agent, const std::string& text);

  // What was refused, for people.
  Status refuse(Status status, const std::string& why) const;

 private:
  struct Copy {  // within this agent's memory
    std::shared_ptr<Transfer> transfer;
    std::vector<RegionRange> from, to;
    size_t at = 0;
    uint64_t offset = 0;
  };

  void make_path();
  bool take_connections();
  bool give_way();
  Status use_gpu_of(const void* pointer);
  Initiator* link_to(const std::string& agent);
  Status refuse_unknown(const std::string& agent) const;
  Status post_copy(const std::shared_ptr<Transfer>& transfer);
  bool round();  // with the lock
  bool copy_some();
  void watch(AgentLink& link);
  bool active() const;
  void drop_failed();
  void tell_of_stranger(const AgentLink& link);
  template <typename Visit>
  void each_link(const Visit& visit) const;
  void progress_by_caller();
  void work();  // of the thread
  void wake();

  Surroundings all_;
  std::unique_ptr<DataPath> path_;
  Listener listener_;
  Socket epoll_, wake_;
  mutable std::mutex mutex_;
  std::map<std::string, ConnectionInfo> known_;
  std::map<std::string, std::unique_ptr<Initiator>> initiators_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::deque<Copy> copies_;
  uint64_t sent_away_ = 0;  // strangers

  std::atomic<uint64_t> caller_rounds_{0};
  std::atomic<bool> stop_{false}, sleeping_{false};
  std::thread thread_;
};

}  // namespace tcpx::nixl
