// What moves the bytes: messages with any number of remotes over a net plugin, matched by order. A
// narrow view of the library of sessions and transfers (native/library), of what the engine needs.
//
// The engine calls it with its own lock held. Nothing here waits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tcpx::nixl {

struct PathOptions {
  std::string plugin;  // a path
  int device = 0;
  int channels = 4;
  uint64_t chunk_bytes = 256 << 10;
  int gpu = -1;
};

enum class PathStage { kConnecting, kConnected, kFailed };
enum class MessageStage { kActive, kComplete, kFailed };

class DataPath {
 public:
  virtual ~DataPath() = default;

  virtual std::string plugin_name() const = 0;
  virtual bool takes_gpu_memory() const = 0;

  // Errors of all below are of std::exception, with what is wrong.
  // What the remote's `join` takes.
  virtual std::string listen(const std::string& remote) = 0;
  // The connects begin, and `begun` says when all have: no accept of the remote waits for them
  // then.
  virtual void join(const std::string& remote, const std::string& info) = 0;
  virtual bool begun(const std::string& remote) = 0;
  // The remote's have begun: the accepts may, too.
  virtual void accept(const std::string& remote) = 0;
  virtual PathStage stage(const std::string& remote) = 0;
  virtual std::string error(const std::string& remote) = 0;
  // What is not complete is lost.
  virtual void close(const std::string& remote) = 0;

  virtual uint64_t register_memory(uint8_t* data, uint64_t bytes, bool on_gpu) = 0;
  virtual void deregister_memory(uint64_t memory) = 0;

  // A message; its number. To be forgotten when it is no longer active.
  virtual uint64_t post(const std::string& remote, bool sends, uint64_t memory, uint64_t offset,
                        uint64_t bytes) = 0;
  virtual MessageStage message(const std::string& remote, uint64_t number) = 0;
  virtual void forget(const std::string& remote, uint64_t number) = 0;

  // One round over all remotes; true when anything moved.
  virtual bool progress() = 0;
  // Nothing is under way, not even of remotes that were closed: no round is of use.
  virtual bool idle() const = 0;
};

std::unique_ptr<DataPath> make_data_path(const PathOptions& options);

}  // namespace tcpx::nixl
