// Memory of this process moved to and from other processes through a NCCL network plugin.
//
//     tcpx_p2p::Options options;
//     options.plugin = "softtcpx";
//     tcpx_p2p::Session session(0, 2, options);      // device 0, 2 channels
//     const std::string info = session.listen("b");  // to b, by a pipe, a socket
//     session.load_remote_conn_info("b", info_of_b);
//     session.establish("b");  // or accept("b") and connect("b")
//     const uint64_t memory = session.register_memory(bytes.data(), bytes.size());
//     tcpx_p2p::Transfer transfer = session.create_transfer("b");
//     transfer.post_send(memory, 0, bytes.size());
//     transfer.wait();
//
// Design. A session is one device of one plugin. A *remote* is a name that the caller gives to one
// other session, of another process or of this one; each has `channels` connections of its own each
// way, and they share nothing but the memory that the session has registered. Between two sessions
// the n-th send meets the n-th receive, which must have as many bytes; nothing else says which
// belong together. A message is cut into chunks of `chunk_bytes`; they go round over the channels,
// and the next message begins on the channel behind the last chunk of the one before. Each channel
// keeps at most a window of chunks posted with the plugin; what does not fit waits within the
// library, in order, and so a post never blocks on the network. A *transfer* is a few messages with
// one remote that are waited for together, and owns no part of a window.
//
// Process. The plugin is part of it, and of its environment: NCCL_DYNAMIC_CHUNK_SIZE, and of
// softtcpx SOFTTCPX_ANSWER_TIMEOUT_MS and SOFTTCPX_REPORT_SIZES, are set where they are not, once
// and before the plugin is initialised; SIGPIPE is ignored from then on. In a forked child a
// session of the parent does nothing, not even close: fork before the first session.
//
// Units. Bytes, and seconds as double; a time that is not finite, or over thirty years, is thirty
// years. "Timeout" is a time without progress of what is waited for, never a total.
//
// Ownership. Registered memory stays the caller's: it must be there until it is deregistered or the
// session is closed. After registration it is named by its mem_id alone, a number that no other
// session of this process uses. Sent bytes may not change, received ones may not be read, until the
// transfer is complete. Session and Transfer are handles that can be moved; a Transfer may outlive
// its Session, whose end is then its error.
//
// Threads. Every call may be made from several threads at once. With Progress::kCaller bytes move
// only within calls: of post_*, is_complete, wait, accept, connect, establish and progress, and
// each of the last five moves those of all remotes; one thread may do that for all others, by
// progress(). With Progress::kThread a thread of the library moves them. No call holds a lock while
// it waits.
//
// Plugins. A call of the plugin that returns an error, or lets an exception out, is an error of
// ours. One that never returns holds the thread that makes it, and every other that asks for the
// same session, beyond all timeouts: no thread can be taken out of a call, and a library does not
// end its process, unless it is asked to. With TCPX_P2P_CALL_TIMEOUT_S, seconds, in the environment
// of the first session a thread watches the calls of plugins of all sessions, and ends the process
// with a line and exit code 6 when one has not returned for that long; no forked child has it. The
// command `tcpx-mpi` has such a watch.
//
// Errors. Every error is an Error, with a Status that a program can tell and a text of one line
// that a person can: what, expected, found, what to do. Three kinds:
//   UsageError    a mistake of the caller's; nothing has moved, and all goes on as if the call had
//                 not been made
//   TimeoutError  a wait in vain; it may be repeated
//   FatalError    of the plugin, the memory or the network. One of a remote stays with it: every
//                 transfer with it that is not complete fails with the same error, and so does
//                 each later call for it but close_remote. Other remotes are not touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__GNUC__)
#define TCPX_P2P_API __attribute__((visibility("default")))
#else
#define TCPX_P2P_API
#endif

namespace tcpx_p2p {

class SessionState;
class RemoteState;

// --- Errors

// What went wrong. The numbers are those of the C API and never change.
enum class Status : int {
  kOk = 0,
  // UsageError
  kInvalidArgument = 1,  // outside of what the call takes
  kUnknownMemory = 2,    // no memory has this mem_id
  kForeignMemory = 3,    // the mem_id is of another session of this process
  kOutOfBounds = 4,      // offset + bytes is beyond the end of the registered memory
  kMemoryInUse = 5,      // deregistered while a message that is not finished names it
  kUnknownRemote = 6,    // no listen or load_remote_conn_info has named this remote
  kNotConnected = 7,     // a post before accept, connect or establish was through
  kAlreadyDone = 8,      // a second accept, connect or load_remote_conn_info of a remote
  kOutOfOrder = 9,       // accept before listen, connect before load_remote_conn_info
  kBadInfo = 10,         // not connection info, cut off, or damaged
  kOtherVersion = 11,    // connection info of another version of the library
  kOtherPlugin = 12,     // of a session over another plugin
  kOtherSettings = 13,   // of a session with other channels or chunk bytes
  kReleased = 14,        // the transfer was released
  kClosed = 15,          // the session or the remote was closed
  kBufferTooSmall = 16,  // C API: what is to be written does not fit
  // TimeoutError
  kTimedOut = 32,  // no progress for as long as the call waits
  // FatalError
  kPluginMissing = 48,  // there is no such plugin, or it cannot be used
  kSetupFailed = 49,    // the plugin refused to begin, to listen, to connect, or the memory
  kRemoteLost = 50,     // the plugin says that the other side, or the connection, is gone
  kPluginFailed = 51,   // a call of the plugin returned another error
  kWrongBytes = 52,    // the remote's message has another size than its receive here; see post_recv
  kGpuFailed = 53,     // a call of the CUDA driver returned an error
  kRemoteFailed = 54,  // fail_remote was called, for the reason that the text has
  kOutOfMemory = 55,   // the system has no memory for what the library needs
  kInternal = 56,      // a defect of this library
};

// "kOutOfBounds" and the like.
TCPX_P2P_API const char* name_of(Status status);

// Of every call, in the three kinds that follow.
class TCPX_P2P_API Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  ~Error() override;
  Status status() const { return status_; }

 private:
  Status status_;
};

class TCPX_P2P_API UsageError : public Error {
 public:
  using Error::Error;
  ~UsageError() override;
};

class TCPX_P2P_API TimeoutError : public Error {
 public:
  using Error::Error;
  ~TimeoutError() override;
};

class TCPX_P2P_API FatalError : public Error {
 public:
  using Error::Error;
  ~FatalError() override;
};

// --- What a session is made with

// Who moves the bytes.
enum class Progress : int {
  kCaller = 0,  // calls of the library, and nobody between them
  kThread = 1,  // a thread of the library, which sleeps while nothing is under way
};

// How receives into memory of a GPU are put together where the plugin scatters them.
enum class Unpack : int {
  kKernel = 0,  // one kernel over all fragments
  kCopies = 1,  // one copy of the device a fragment
  kHost = 2,    // through host memory
};

// What a session may be given beside its device and channels.
struct Options {
  // A path, a name for the dynamic linker, or "softtcpx" or "null", which lie beside this library.
  // Empty: UCCL_TCPX_PLUGIN_PATH. A plugin is loaded and initialised once a process, with the
  // environment as it is then, and never unloaded.
  std::string plugin;
  // Version of the plugin's table; 0: the newest that it offers.
  int abi = 0;
  // At most 2 MiB, and NCCL_DYNAMIC_CHUNK_SIZE where that is set; it is set to this, before the
  // plugin is loaded, where it is not. Equal on both sides.
  uint64_t chunk_bytes = 512 << 10;
  // Chunks that are posted with the plugin at the same time, a channel: 1 to 16.
  int window_send = 12;
  int window_receive = 16;
  // Of accept, connect, establish and wait that are given no timeout of their own.
  double connect_timeout_s = 30;
  double stall_timeout_s = 30;
  // CUDA's number of the GPU whose memory may be registered; -1: none. It is current on the calling
  // thread within each call, and only there.
  int gpu = -1;
  Unpack unpack = Unpack::kKernel;
  Progress progress = Progress::kCaller;
  // Memory is registered with the plugin when the first message of a remote and direction names it;
  // false: with every connection at once, so that register_memory tells what the plugin refuses.
  bool register_lazily = true;
  // An accept goes on from listen() on, whoever makes progress. False: when the peer's info is
  // loaded or accept() waits for it, so that the listeners of a remote that is closed before are
  // closed at once: one with an accept under way stays open until a connect of the library's own
  // has ended that.
  bool accept_early = true;
  // Called about every 50 ms by a call that waits, with no lock held; by throwing it ends the wait.
  std::function<void()> while_waiting;
};

// What may be registered.
enum class MemoryKind : int {
  kHost = 1,  // of the process: any address, any size
  kCuda = 2,  // of the session's GPU, where the plugin takes it
};

// How far the connections of a remote are.
enum class RemoteStage : int {
  kNew = 0,         // named; not all of listen and load_remote_conn_info were called
  kConnecting = 1,  // connections are coming up, by progress
  kConnected = 2,   // all of both directions are there
  kFailed = 3,      // see Session::remote_error; to be closed
  kClosed = 4,      // by close_remote, or never named
};

// A stretch of registered memory.
struct Piece {
  uint64_t mem_id = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// --- Transfer

// How far a transfer is.
enum class TransferStage : int {
  kComplete = 0,  // nothing of it is left to do; also before its first message
  kActive = 1,
  kFailed = 2,  // something is left that will never be done: wait() throws why
};

// A few messages with one remote that are waited for together; Session::create_transfer makes one.
class TCPX_P2P_API Transfer {
 public:
  // Of nobody: only to be assigned to.
  Transfer();
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  // Releases it.
  ~Transfer();

  // Sends `bytes` from `offset` of a registered memory. Returns at once, whatever is in flight. The
  // bytes may not change until the transfer is complete. 0 bytes are a message, too.
  // Throws kUnknownMemory, kForeignMemory, kOutOfBounds, kNotConnected, kReleased, kClosed, what
  // has ended the remote, and kSetupFailed where the plugin refuses the memory, after which the
  // remote is as good as before.
  void post_send(uint64_t mem_id, uint64_t offset, uint64_t bytes);
  // Receives the next message of the remote, which has as many bytes: any other size ends the
  // remote as kWrongBytes where the plugin tells the size of a receive, as softtcpx does here, or
  // its fragments, as TCPX does in memory of a GPU. In memory of the host TCPX tells nothing: there
  // a message that is shorter by less than its last chunk completes the receive. Throws as
  // post_send.
  void post_recv(uint64_t mem_id, uint64_t offset, uint64_t bytes);
  // Several messages in this order under one lock; all of them, or none if it throws.
  void post_sends(const std::vector<Piece>& pieces);
  void post_recvs(const std::vector<Piece>& pieces);

  // Whether all that was posted so far is complete. Makes progress and does not wait. Throws what
  // has ended the remote, if something is left.
  bool is_complete();
  // The same without progress and without an exception for a failure: for who calls
  // Session::progress for many transfers. Throws kReleased and kClosed.
  TransferStage stage() const;
  // Waits until complete. Throws kTimedOut after `timeout_s` without progress of the directions in
  // which something is left (negative: stall_timeout_s), and what has ended the remote.
  void wait(double timeout_s = -1);
  // Forgets it; what is not complete goes on. May be called again.
  void release() noexcept;
  // 1 for the first of a remote; 0: of nobody. Errors name a transfer so.
  uint64_t number() const;

 private:
  friend class Session;
  friend class SessionState;
  Transfer(std::shared_ptr<SessionState> session, std::shared_ptr<RemoteState> remote,
           uint64_t number);
  std::shared_ptr<SessionState> session_;
  std::shared_ptr<RemoteState> remote_;
  uint64_t number_ = 0;
};

// --- Session

// One device of a plugin, and connections from there to any number of remotes.
class TCPX_P2P_API Session {
 public:
  // `channels` connections a remote and direction, 1 to 1024; equal on both sides. Throws
  // kInvalidArgument, kPluginMissing, kSetupFailed.
  Session(int device, int channels, const Options& options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Closes, without a word.
  ~Session();

  // --- Connections

  // What the remote's session needs to connect to this one: a few hundred bytes, for its
  // load_remote_conn_info. Names the remote, which then has listeners of its own: the info of one
  // remote is of no use to another. A second call returns the same.
  std::string listen(const std::string& remote);
  // Takes what the remote's listen returned. Names the remote. From here on its connections come up
  // with progress, whoever makes it. Throws kBadInfo, kOtherVersion, kOtherPlugin, kOtherSettings,
  // kAlreadyDone; the right info may follow then. With `accepts` false, and accept_early too, no
  // accept is entered before begin_accepts, accept or establish is called.
  void load_remote_conn_info(const std::string& remote, const std::string& info,
                             bool accepts = true);
  // For sessions of several processes that connect in a circle over a plugin whose accept blocks
  // until its peer has connected: each tells its remote when its connects to that have begun, and
  // lets accepts begin when it hears the same. Throw kUnknownRemote.
  bool connects_begun(const std::string& remote) const;
  void begin_accepts(const std::string& remote);
  // Waits until the remote has connected; then messages can be received. Connections to it come up
  // meanwhile. Throws kTimedOut after `timeout_s` in which no connection came up (negative:
  // connect_timeout_s) and may then be called again; kSetupFailed where the plugin refuses, which
  // stays; kOutOfOrder, kUnknownRemote; kAlreadyDone the second time.
  void accept(const std::string& remote, double timeout_s = -1);
  // Waits until connected to the remote; then messages can be sent. Throws as accept.
  void connect(const std::string& remote, double timeout_s = -1);
  // Both of them, in any order in which the two sides come; returns at once where all is there.
  void establish(const std::string& remote, double timeout_s = -1);

  // Whom this session knows and has not closed, by name.
  std::vector<std::string> remotes() const;
  // Without progress and without an exception; kClosed for a remote that is not known.
  RemoteStage remote_stage(const std::string& remote) const;
  // What has ended the remote, "" if nothing has; and its status.
  std::string remote_error(const std::string& remote) const;
  Status remote_status(const std::string& remote) const;
  // Ends the remote, for a reason that its transfers then tell as kRemoteFailed. No further call
  // of the plugin is made for it but those that close. Nothing if it has ended before.
  void fail_remote(const std::string& remote, const std::string& reason);
  // Closes its connections, which leaves all memory unused by it; what is not complete is lost, and
  // its transfers then throw kClosed. The other side must have received everything before: a sender
  // that closes early can give its receiver an error for data that is whole. Its name may be used
  // anew. Connections that are still coming up, which no plugin takes back, go on to their end with
  // progress, and are closed then; where 256 of them have none, listen and load_remote_conn_info
  // throw kSetupFailed. Nothing for a remote that is not known. Throws kPluginFailed if the
  // plugin refuses, when all is closed; kGpuFailed where a GPU does not end its unpacks, and the
  // connections stay open then.
  void close_remote(const std::string& remote);

  // --- Memory

  // Registers memory for messages with all remotes, those to come too; its mem_id. Memory of a GPU
  // must be the session's GPU's, and every page of it that is touched within one allocation; what
  // still writes to it must be waited for before it is sent. Throws kInvalidArgument, and
  // kSetupFailed where the plugin refuses it (see register_lazily).
  uint64_t register_memory(void* data, size_t bytes, MemoryKind kind = MemoryKind::kHost);
  // Lets the memory go. Throws kMemoryInUse while a message that is not finished uses it, of a
  // released transfer too: wait for them, or close the remote.
  void deregister_memory(uint64_t mem_id);
  // Throws kUnknownMemory, kForeignMemory.
  uint64_t memory_bytes(uint64_t mem_id) const;

  // --- Transfers

  // A transfer without messages yet. Any number may be under way, with any number of remotes.
  // Throws kUnknownRemote.
  Transfer create_transfer(const std::string& remote);

  // One round over all remotes: connections that come up, chunks that are posted and tested. Never
  // waits; true when anything moved. Errors of a remote stay with it, and are not thrown.
  bool progress();
  // Nothing is under way, not even connections of remotes that were closed: until something is
  // asked for, progress would move nothing.
  bool idle() const;

  // --- What it is

  // As the plugin calls itself, the path of its file, and the version of the table in use.
  std::string plugin_name() const;
  std::string plugin_path() const;
  int plugin_abi() const;
  // Devices of the plugin.
  int devices() const;
  // What register_memory takes here: kHost; kCuda with a GPU, where the plugin takes its memory.
  std::vector<MemoryKind> memory_kinds() const;
  int device() const;
  int channels() const;
  const Options& options() const;

  // Closes all remotes; what is not complete is lost, see close_remote. Waits for connections that
  // are still coming up, for a second in which none ends; the progress of other sessions goes on
  // with them. May be called again.
  void close();

 private:
  std::shared_ptr<SessionState> state_;
};

// Version of the library, "0.1.0".
TCPX_P2P_API const char* version();

}  // namespace tcpx_p2p
