// A stand-in for NIXL's agent: loads libplugin_TCPX.so as NIXL does and drives its table.
#pragma once

#include <dlfcn.h>
#include <sched.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "engine/clock.h"
#include "library/nixl/abi.h"

namespace stand_in {

using namespace tcpx::nixl;

constexpr int64_t kDeadlineNs = 30'000'000'000;

inline PluginTable* load_plugin() {
  static PluginTable* table = [] {
    CHECK(dlopen(NIXL_STAND_IN, RTLD_NOW | RTLD_GLOBAL) != nullptr);
    void* plugin = dlopen(NIXL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) check::fail(__FILE__, __LINE__, dlerror());
    auto* init = reinterpret_cast<PluginTable* (*)()>(dlsym(plugin, "nixl_plugin_init"));
    PluginTable* loaded = init();
    CHECK(loaded != nullptr);
    return loaded;
  }();
  return table;
}

struct Block {
  uint64_t at;
  uint64_t bytes;
};

class Agent {
 public:
  explicit Agent(const std::string& called, bool progress_thread = true, Params params = {})
      : name(called), params_(std::move(params)) {
    params_.try_emplace("plugin", SOFTTCPX_PLUGIN);
    params_.try_emplace("ip", "127.0.0.1");
    InitParams init;
    init.local_agent = name;
    init.type = "TCPX";
    init.params = &params_;
    init.progress_thread = progress_thread;
    backend.reset(load_plugin()->create(&init));
  }

  std::string info() const {
    std::string text;
    CHECK_EQ(backend->connection_info(text), kSuccess);
    return text;
  }
  Status load(const Agent& other) {
    return backend->load_connection_info(other.name, other.info());
  }

  // As the agent that waits for something calls it, with or without a progress thread.
  Notifications fetch() {
    Notifications got;
    CHECK_EQ(backend->notifications(got), kSuccess);
    return got;
  }

  const std::string name;
  struct Destroy {
    void operator()(Backend* one) const { load_plugin()->destroy(one); }
  };
  std::unique_ptr<Backend, Destroy> backend;

 private:
  Params params_;
};

// Memory of an agent, registered with it.
class Bytes {
 public:
  Bytes(Agent& owner, size_t count, uint8_t seed = 0) : owner_(owner), data(count) {
    for (size_t i = 0; seed != 0 && i < count; ++i) {
      data[i] = static_cast<uint8_t>(seed + i * 2654435761u / 65536);
    }
    const BlobDescriptor where{{reinterpret_cast<uintptr_t>(data.data()), count, 0}, ""};
    CHECK_EQ(owner.backend->register_memory(where, kDram, local), kSuccess);
  }
  ~Bytes() {
    if (local != nullptr && owner_.backend) owner_.backend->deregister_memory(local);
  }
  Status let_go() { return owner_.backend->deregister_memory(std::exchange(local, nullptr)); }

  std::string blob() const {
    std::string text;
    CHECK_EQ(owner_.backend->public_data(local, text), kSuccess);
    return text;
  }

 private:
  Agent& owner_;

 public:
  std::vector<uint8_t> data;
  Metadata* local = nullptr;
};

// What an agent knows of another one's memory.
class Known {
 public:
  Known(Agent& here, const std::string& agent, const std::string& blob) : here_(here) {
    const BlobDescriptor what{{0, 0, 0}, blob};
    CHECK_EQ(here.backend->load_remote_metadata(what, kDram, agent, metadata), kSuccess);
  }
  Known(Agent& here, const Agent& owner, const Bytes& memory)
      : Known(here, owner.name, memory.blob()) {}
  ~Known() { here_.backend->unload_metadata(metadata); }
  Metadata* metadata = nullptr;

 private:
  Agent& here_;
};

inline MetaList list_of(const uint8_t* base, Metadata* metadata, const std::vector<Block>& blocks) {
  MetaList list(kDram);
  for (const Block& block : blocks) {
    list.entries().push_back(
        {{reinterpret_cast<uintptr_t>(base) + block.at, block.bytes, 0}, metadata});
  }
  return list;
}

class Xfer {
 public:
  Xfer(Agent& agent, Operation operation, const Bytes& here, const std::vector<Block>& blocks_here,
       const std::string& remote, const uint8_t* there, Metadata* there_metadata,
       const std::vector<Block>& blocks_there)
      : agent_(agent),
        operation_(operation),
        remote_(remote),
        local_list_(list_of(here.data.data(), here.local, blocks_here)),
        remote_list_(list_of(there, there_metadata, blocks_there)) {
    prepared =
        agent.backend->prepare(operation_, local_list_, remote_list_, remote_, request, nullptr);
  }
  ~Xfer() {
    if (request != nullptr) release();
  }
  Status post(const char* notification = nullptr) {
    PostOptions options;
    if (notification != nullptr) {
      options.has_notification = true;
      options.notification = notification;
    }
    return agent_.backend->post(operation_, local_list_, remote_list_, remote_, request, &options);
  }
  Status check() { return agent_.backend->check(request); }
  Status release() { return agent_.backend->release(std::exchange(request, nullptr)); }
  // Until it is over; `meanwhile` are agents of this process that drive themselves.
  Status wait(const std::vector<Agent*>& meanwhile = {}) {
    const int64_t deadline = tcpx::now_ns() + kDeadlineNs;
    Status status = check();
    while (status == kInProgress) {
      for (Agent* other : meanwhile) {
        for (auto& note : other->fetch()) notes.push_back(note);
      }
      if (tcpx::now_ns() > deadline) {
        check::fail(__FILE__, __LINE__, "a transfer does not end");
        return kUnknown;
      }
      sched_yield();
      status = check();
    }
    return status;
  }
  Status run(const char* notification = nullptr, const std::vector<Agent*>& meanwhile = {}) {
    const Status status = post(notification);
    return status == kInProgress ? wait(meanwhile) : status;
  }
  Status prepared;
  Request* request = nullptr;
  Notifications notes;

 private:
  Agent& agent_;
  const Operation operation_;
  const std::string remote_;
  MetaList local_list_, remote_list_;
};

inline Notifications wait_for_note(Agent& agent) {
  const int64_t deadline = tcpx::now_ns() + kDeadlineNs;
  for (;;) {
    Notifications got = agent.fetch();
    if (!got.empty()) return got;
    if (tcpx::now_ns() > deadline) {
      check::fail(__FILE__, __LINE__, "no notification");
      return {{"", ""}};
    }
    sched_yield();
  }
}

}  // namespace stand_in
