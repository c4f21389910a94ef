// The handles: what a caller holds, which pass on to what is behind them.
#include <utility>

#include "library/state.h"

namespace tcpx_p2p {
namespace {

SessionState& of(const std::shared_ptr<SessionState>& state) {
  if (state == nullptr) {
    throw UsageError(Status::kClosed, "this handle is empty: it was moved from, or never made");
  }
  return *state;
}

}  // namespace

Session::Session(int device, int channels, const Options& options)
    : state_(std::make_shared<SessionState>(
          use_plugin(options.plugin, options.abi, options.chunk_bytes), device, channels,
          options)) {}

Session::Session(Session&&) noexcept = default;

Session& Session::operator=(Session&& other) noexcept {
  const Session old(std::move(*this));  // closes
  state_ = std::move(other.state_);
  return *this;
}

Session::~Session() {
  if (state_ == nullptr) return;
  try {
    state_->close();
  } catch (const std::exception&) {
    // Nobody is left to be told; close() tells.
  }
}

std::string Session::listen(const std::string& remote) { return of(state_).listen(remote); }

void Session::load_remote_conn_info(const std::string& remote, const std::string& info,
                                    bool accepts) {
  of(state_).load_remote_conn_info(remote, info, accepts);
}

bool Session::connects_begun(const std::string& remote) const {
  const Remote found = of(state_).find_remote(remote);
  return found->loaded && found->link().begun();
}

void Session::begin_accepts(const std::string& remote) {
  of(state_).find_remote(remote)->link().take_accepts(true);
}

void Session::accept(const std::string& remote, double timeout_s) {
  of(state_).accept(remote, timeout_s);
}

void Session::connect(const std::string& remote, double timeout_s) {
  of(state_).connect(remote, timeout_s);
}

void Session::establish(const std::string& remote, double timeout_s) {
  of(state_).establish(remote, timeout_s);
}

std::vector<std::string> Session::remotes() const { return of(state_).remotes(); }

RemoteStage Session::remote_stage(const std::string& remote) const {
  const Remote found = of(state_).look_for(remote);
  return found == nullptr ? RemoteStage::kClosed : found->stage();
}

std::string Session::remote_error(const std::string& remote) const {
  const Remote found = of(state_).look_for(remote);
  std::string text;
  if (found != nullptr) found->status(&text);
  return text;
}

Status Session::remote_status(const std::string& remote) const {
  const Remote found = of(state_).look_for(remote);
  std::string text;
  return found == nullptr ? Status::kOk : found->status(&text);
}

void Session::fail_remote(const std::string& remote, const std::string& reason) {
  of(state_).find_remote(remote)->fail(reason);
}

void Session::close_remote(const std::string& remote) { of(state_).close_remote(remote); }

uint64_t Session::register_memory(void* data, size_t bytes, MemoryKind kind) {
  return of(state_).register_memory(data, bytes, kind);
}

void Session::deregister_memory(uint64_t mem_id) { of(state_).deregister_memory(mem_id); }

uint64_t Session::memory_bytes(uint64_t mem_id) const { return of(state_).memory_bytes(mem_id); }

Transfer Session::create_transfer(const std::string& remote) {
  const Remote found = of(state_).find_remote(remote);
  const uint64_t number = found->link().create();
  return Transfer(state_, found, number);
}

bool Session::progress() { return of(state_).progress(); }
bool Session::idle() const { return !of(state_).anything_under_way(); }

std::string Session::plugin_name() const { return of(state_).plugin().plugin->net().name(); }
std::string Session::plugin_path() const { return of(state_).plugin().plugin->path(); }
int Session::plugin_abi() const { return of(state_).plugin().plugin->net().abi(); }

int Session::devices() const {
  int count = 0;
  const int code = of(state_).plugin().plugin->net().devices(&count);
  if (code != kNetSuccess) {
    throw FatalError(Status::kPluginFailed, tcpx::PluginError("devices", code, "").what());
  }
  return count;
}

std::vector<MemoryKind> Session::memory_kinds() const {
  std::vector<MemoryKind> kinds;
  for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kCuda}) {
    if (of(state_).takes(kind)) kinds.push_back(kind);
  }
  return kinds;
}

int Session::device() const { return of(state_).device(); }
int Session::channels() const { return of(state_).channels(); }
const Options& Session::options() const { return of(state_).options(); }
void Session::close() { of(state_).close(); }

// --- Transfer

Transfer::Transfer() = default;
Transfer::Transfer(std::shared_ptr<SessionState> session, std::shared_ptr<RemoteState> remote,
                   uint64_t number)
    : session_(std::move(session)), remote_(std::move(remote)), number_(number) {}
Transfer::Transfer(Transfer&& other) noexcept
    : session_(std::move(other.session_)),
      remote_(std::move(other.remote_)),
      number_(std::exchange(other.number_, 0)) {}

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this == &other) return *this;
  release();
  session_ = std::move(other.session_);
  remote_ = std::move(other.remote_);
  number_ = std::exchange(other.number_, 0);
  return *this;
}

Transfer::~Transfer() { release(); }

void Transfer::post_send(uint64_t mem_id, uint64_t offset, uint64_t bytes) {
  const Piece piece{mem_id, offset, bytes};
  of(session_).post(*remote_, number_, tcpx::Direction::kSend, &piece, 1);
}

void Transfer::post_recv(uint64_t mem_id, uint64_t offset, uint64_t bytes) {
  const Piece piece{mem_id, offset, bytes};
  of(session_).post(*remote_, number_, tcpx::Direction::kReceive, &piece, 1);
}

void Transfer::post_sends(const std::vector<Piece>& pieces) {
  of(session_).post(*remote_, number_, tcpx::Direction::kSend, pieces.data(), pieces.size());
}

void Transfer::post_recvs(const std::vector<Piece>& pieces) {
  of(session_).post(*remote_, number_, tcpx::Direction::kReceive, pieces.data(), pieces.size());
}

bool Transfer::is_complete() { return of(session_).is_complete(*remote_, number_); }
TransferStage Transfer::stage() const { return of(session_).stage(*remote_, number_); }
void Transfer::wait(double timeout_s) { of(session_).wait(*remote_, number_, timeout_s); }

void Transfer::release() noexcept {
  if (session_ == nullptr) return;
  try {
    remote_->link().release(number_);
  } catch (const std::exception&) {
    // It was released before.
  }
}

uint64_t Transfer::number() const { return number_; }

}  // namespace tcpx_p2p
