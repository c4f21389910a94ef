// What NIXL 1.0 to 1.5 hands to a backend, and what it expects back: our own declarations of it.
//
// NIXL ships no headers with its wheels, and the number by which it asks for a version of this was
// 1 while the table of virtual functions changed twice. So sizes are asserted here, the order of
// the table is compared by a test (tests/native/test_nixl_abi.cc), and guard.h looks for what only
// these versions have. Both sides must use C++20 and libstdc++'s present strings.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tcpx::nixl {

enum Memory : unsigned { kDram, kVram, kBlock, kObject, kFile };
enum Operation : unsigned { kRead, kWrite };
enum Status : int {
  kInProgress = 1,
  kSuccess = 0,
  kNotPosted = -1,
  kInvalidParam = -2,
  kBackend = -3,
  kNotFound = -4,
  kMismatch = -5,
  kNotAllowed = -6,
  kRepostActive = -7,
  kUnknown = -8,
  kNotSupported = -9,
  kRemoteDisconnect = -10,
  kCanceled = -11,
};

constexpr int kPluginApi = 1;

using Params = std::unordered_map<std::string, std::string>;
using MemoryList = std::vector<Memory>;
using Notifications = std::vector<std::pair<std::string, std::string>>;  // sender, text
using QueryResponses = std::vector<std::optional<Params>>;

struct Descriptor {
  uintptr_t address;
  size_t bytes;
  uint64_t device;
};

struct BlobDescriptor : Descriptor {
  std::string blob;
};

// The base of what a backend keeps of memory, its own or a remote agent's.
class Metadata {
 public:
  explicit Metadata(bool is_private) : is_private_(is_private) {}
  virtual ~Metadata() = default;

 protected:
  bool is_private_;
};

// The base of a request.
class Request {
 public:
  virtual ~Request() = default;
};

struct MetaDescriptor : Descriptor {
  Metadata* metadata;
};

template <typename Entry>
class DescriptorList {
 public:
  explicit DescriptorList(Memory memory) : memory_(memory) {}
  virtual ~DescriptorList() = default;
  Memory memory() const { return memory_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }

 private:
  Memory memory_;
  std::vector<Entry> entries_;
};
using MetaList = DescriptorList<MetaDescriptor>;
using BlobList = DescriptorList<BlobDescriptor>;
class RemoteMetaList;  // of memory views, which we do not offer
class AgentOptions;    // of cost estimates, nor these
using MemoryView = void*;

struct PostOptions {
  std::string notification;
  bool has_notification = false;
  std::string custom;
};

struct InitParams {
  std::string local_agent;
  std::string type;
  Params* params = nullptr;
  bool progress_thread = false;
  uint64_t progress_delay_us = 0;
  int sync_mode = 0;
  bool telemetry = false;
};

// The members of the base class are read by NIXL, at their places.
class Backend {
 public:
  explicit Backend(const InitParams& init)
      : type_(init.type),
        params_(*init.params),
        local_agent_(init.local_agent),
        telemetry_(init.telemetry) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual ~Backend() = default;
  virtual bool supports_remote() const = 0;
  virtual bool supports_local() const = 0;
  virtual bool supports_notif() const = 0;
  virtual MemoryList supported_memories() const = 0;
  virtual Status register_memory(const BlobDescriptor& memory, const Memory& kind,
                                 Metadata*& out) = 0;
  virtual Status deregister_memory(Metadata* metadata) = 0;
  virtual Status connect(const std::string& agent) = 0;
  virtual Status disconnect(const std::string& agent) = 0;
  virtual Status unload_metadata(Metadata* metadata) = 0;
  virtual Status prepare(const Operation& operation, const MetaList& local, const MetaList& remote,
                         const std::string& agent, Request*& request,
                         const PostOptions* options) const = 0;
  virtual Status post(const Operation& operation, const MetaList& local, const MetaList& remote,
                      const std::string& agent, Request*& request,
                      const PostOptions* options) const = 0;
  virtual Status check(Request* request) const = 0;
  virtual Status release(Request* request) const = 0;
  virtual Status prepare_remote_view(const RemoteMetaList&, MemoryView&, const PostOptions*) const {
    return kNotSupported;
  }
  virtual Status prepare_local_view(const MetaList&, MemoryView&, const PostOptions*) const {
    return kNotSupported;
  }
  virtual void release_view(MemoryView) const {}
  virtual Status public_data(const Metadata* metadata, std::string& out) const = 0;
  virtual Status connection_info(std::string& out) const = 0;
  virtual Status load_connection_info(const std::string& agent, const std::string& info) = 0;
  virtual Status load_remote_metadata(const BlobDescriptor& memory, const Memory& kind,
                                      const std::string& agent, Metadata*& out) = 0;
  virtual Status load_local_metadata(Metadata* local, Metadata*& out) = 0;
  virtual Status notifications(Notifications& out) = 0;
  virtual Status notify(const std::string& agent, const std::string& text) const = 0;
  virtual Status query_memory(const BlobList&, QueryResponses&) const { return kNotSupported; }
  virtual Status estimate_cost(const Operation&, const MetaList&, const MetaList&,
                               const std::string&, Request* const&, std::chrono::microseconds&,
                               std::chrono::microseconds&, int&, const AgentOptions*) const {
    return kNotSupported;
  }

  // As NIXL reads them, without a call.
  bool init_failed() const { return init_failed_; }
  const std::string& type() const { return type_; }

 private:
  std::string type_;
  Params params_;
  std::vector<char> telemetry_events_;  // of a type that differs among versions: never touched
  std::mutex telemetry_mutex_;

 protected:
  bool init_failed_ = false;
  const std::string local_agent_;
  const bool telemetry_;

  const Params& params() const { return params_; }
};

// What nixl_plugin_init returns.
struct PluginTable {
  int api_version;
  Backend* (*create)(const InitParams* init);
  void (*destroy)(Backend* backend);
  const char* (*name)();
  const char* (*version)();
  Params (*options)();
  MemoryList (*memories)();
};

static_assert(sizeof(void*) == 8 && sizeof(Memory) == 4 && sizeof(Operation) == 4);
static_assert(sizeof(InitParams) == 96);
static_assert(sizeof(Backend) == 208);
static_assert(sizeof(MetaDescriptor) == 32);
static_assert(sizeof(BlobDescriptor) == 56);
static_assert(sizeof(MetaList) == 40);
static_assert(sizeof(PostOptions) == 72);
static_assert(sizeof(PluginTable) == 56);
static_assert(sizeof(Metadata) == 16 && sizeof(Request) == 8);

}  // namespace tcpx::nixl
