#include "library/nixl/core.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>

#include "cuda/compiler.h"
#include "cuda/gpu.h"
#include "engine/clock.h"

namespace tcpx::nixl {
namespace {

constexpr int64_t kReleasePatienceNs = 1'000'000'000;  // of a region that is still in use
constexpr int kMostStrangers = 64;  // beyond them the oldest gives way, and one of ours dials again
constexpr int kConnectionsARound = 64;
constexpr size_t kMostRevoked = 4096;
constexpr int kMostEvents = 64;

// Of the kernels that put together what a plugin scatters; once a process.
void configure_compiler(const Options& options) {
  static std::once_flag once;
  std::call_once(once, [&] {
    CudaCompiler compiler;
    std::istringstream folders(options.nvrtc);
    for (std::string folder; std::getline(folders, folder, ':');) {
      compiler.folders.push_back(folder);
    }
    compiler.cache = options.kernel_cache;
    set_cuda_compiler(compiler);
  });
}

void add_to(const Socket& epoll, int fd, void* data) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.ptr = data;
  if (epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::runtime_error(std::string("epoll_ctl: ") + strerror(errno));
  }
}

}  // namespace

Core::Core(const std::string& agent, const Options& options, bool with_thread)
    : listener_(options.ip, options.port),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (epoll_.fd() < 0 || wake_.fd() < 0) throw std::runtime_error("no descriptor is left");
  all_.agent = agent;
  all_.epoll = epoll_.fd();
  all_.options = options;
  if (!random_token(&all_.token)) throw std::runtime_error("no random numbers are to be had");
  all_.machine = machine_identity();
  make_path();
  all_.terms = {path_->plugin_name(), static_cast<uint16_t>(options.channels), options.chunk_bytes,
                options.stage_below, options.stage_bytes};
  add_to(epoll_, listener_.fd(), &listener_);
  add_to(epoll_, wake_.fd(), &wake_);
  if (with_thread) thread_ = std::thread([this] { work(); });
}

Core::~Core() {
  stop_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard<std::mutex> lock(mutex_);
  each_link([](AgentLink& link) { link.end(); });
  initiators_.clear();
  targets_.clear();
}

void Core::make_path() {
  if (all_.options.gpu >= 0) configure_compiler(all_.options);
  PathOptions options;
  options.plugin = all_.options.plugin;
  options.device = all_.options.device;
  options.channels = all_.options.channels;
  options.chunk_bytes = all_.options.chunk_bytes;
  options.gpu = all_.options.gpu;
  // softtcpx reads it once, when it is loaded: more than one thread, where the cores are there.
  setenv("SOFTTCPX_HOST_WORKERS", "1", 0);
  path_ = make_data_path(options);
  all_.path = path_.get();
  for (const auto& [id, region] : all_.regions.all()) {
    region->path_id = path_->register_memory(region->data, region->bytes, region->on_gpu);
  }
}

// Whether the plugin does is known when the first is registered: a session has one GPU. The driver
// is not begun for a process without one, which may fork after this.
bool Core::may_take_gpu_memory() const {
  static const bool has_driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  return has_driver;
}

Status Core::refuse(Status status, const std::string& why) const {
  report(all_.agent, why);
  return status;
}

Status Core::refuse_unknown(const std::string& agent) const {
  return refuse(kNotFound, "no connection info of agent " + agent + " was loaded");
}

template <typename Visit>
void Core::each_link(const Visit& visit) const {
  for (const auto& [name, link] : initiators_) visit(*link);
  for (const auto& link : targets_) visit(*link);
}

// --- Memory

// The GPU whose memory comes first is this engine's.
Status Core::use_gpu_of(const void* pointer) {
  const int gpu = gpu_of(pointer);
  if (gpu < 0) return refuse(kInvalidParam, "VRAM at an address that no GPU has");
  if (gpu == all_.options.gpu) return kSuccess;
  if (all_.options.gpu >= 0) {
    return refuse(kNotSupported, "memory of GPU " + std::to_string(gpu) +
                                     ", but this engine's is " + std::to_string(all_.options.gpu) +
                                     ": create one agent a GPU");
  }
  for (const auto& target : targets_) target->read();  // what was asked for already
  bool busy = !copies_.empty();
  each_link([&](const AgentLink& link) { busy |= link.waits(); });
  if (busy) {
    return refuse(kNotAllowed,
                  "the first VRAM while transfers are under way: register it before, "
                  "or create the backend with gpu=" +
                      std::to_string(gpu));
  }
  each_link([](AgentLink& link) { link.end(); });  // they come up again as they are needed
  drop_failed();
  all_.options.gpu = gpu;
  try {
    make_path();
  } catch (...) {
    all_.options.gpu = -1;
    throw;
  }
  return kSuccess;
}

Status Core::register_memory(const Descriptor& memory, Memory kind, Metadata*& out) {
  if (kind != kDram && kind != kVram) return kNotSupported;
  if (memory.bytes == 0 || memory.address == 0 || memory.bytes > UINTPTR_MAX - memory.address) {
    return refuse(kInvalidParam, std::to_string(memory.bytes) + " bytes are no memory");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto* data = reinterpret_cast<uint8_t*>(memory.address);
  if (kind == kVram) {
    const Status status = use_gpu_of(data);
    if (status != kSuccess) return status;
    if (!path_->takes_gpu_memory()) {
      return refuse(kNotSupported, all_.terms.plugin + " takes no memory of GPUs");
    }
    all_.inline_bytes.open(all_.options.gpu, all_.options.patience_s);
  }
  const std::shared_ptr<Region> region = all_.regions.add(data, memory.bytes, kind == kVram);
  try {
    region->path_id = path_->register_memory(data, memory.bytes, kind == kVram);
  } catch (...) {
    all_.regions.remove(*region);
    throw;
  }
  out = new LocalMetadata(region);
  return kSuccess;
}

Status Core::deregister_memory(const LocalMetadata& metadata) {
  std::unique_lock<std::mutex> lock(mutex_);
  Region& region = *metadata.region;
  if (!all_.regions.has_made(region)) {
    return refuse(kInvalidParam, "memory to let go was registered with another engine");
  }
  if (region.gone) return kNotFound;
  region.gone = true;
  all_.regions.remove(region);  // nothing new may begin
  const int64_t deadline = now_ns() + kReleasePatienceNs;
  for (bool late = false; region.users > 0 && !late;) {
    late = now_ns() > deadline;  // one round more, for who was not given a CPU
    round();
    lock.unlock();
    sched_yield();
    lock.lock();
  }
  if (region.users > 0) {
    each_link([&](AgentLink& link) {
      if (link.uses(region)) {
        link.fail(kBackend,
                  "agent " + link.remote() + ": memory of a transfer under way was let go");
      }
    });
    drop_failed();
  }
  path_->deregister_memory(region.path_id);
  return kSuccess;
}

// --- Other agents

std::string Core::connection_info() const {
  ConnectionInfo info;
  info.terms = all_.terms;
  info.token = all_.token;
  info.machine = all_.machine;
  info.port = listener_.port();
  if (all_.options.ip.empty()) {
    info.addresses = local_addresses(all_.options.interface);
  } else {
    info.addresses = {all_.options.ip};
    info.machine.clear();  // it listens nowhere else
  }
  if (info.addresses.empty()) {
    throw std::runtime_error("interface " + all_.options.interface + " has no address");
  }
  return write_connection_info(info);
}

Status Core::load_connection_info(const std::string& agent, const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ConnectionInfo info;
  try {
    info = read_connection_info(text);
  } catch (const WireError& error) {
    return refuse(kMismatch, "connection info of agent " + agent + ": " + error.what());
  }
  const std::string differs = difference(all_.terms, info.terms);
  if (!differs.empty()) return refuse(kMismatch, "agent " + agent + ": " + differs);
  const auto before = known_.find(agent);
  if (before != known_.end() && !same_token(before->second.token, info.token)) {
    const auto link = initiators_.find(agent);
    if (link != initiators_.end()) link->second->end();
    drop_failed();
  }
  std::deque<Token>& revoked = all_.revoked;
  revoked.erase(std::remove_if(revoked.begin(), revoked.end(),
                               [&](const Token& each) { return same_token(each, info.token); }),
                revoked.end());
  known_[agent] = std::move(info);
  return kSuccess;
}

Initiator* Core::link_to(const std::string& agent) {
  const auto known = known_.find(agent);
  if (known == known_.end()) return nullptr;
  std::unique_ptr<Initiator>& link = initiators_[agent];
  // The end of one that idles was not seen yet where nobody else looks.
  if (link && !thread_.joinable() && !link->waits()) link->read();
  if (!link || link->stage() == LinkStage::kFailed) {
    if (link && link->lost_work()) report(all_.agent, link->reason());
    link = std::make_unique<Initiator>(all_, agent, known->second);
    wake();
  }
  return link.get();
}

Status Core::connect(const std::string& agent) {
  if (agent == all_.agent) return kSuccess;
  const std::lock_guard<std::mutex> lock(mutex_);
  return link_to(agent) != nullptr ? kSuccess : refuse_unknown(agent);
}

void Core::disconnect(const std::string& agent) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = known_.find(agent);
  if (known != known_.end()) {
    const Token token = known->second.token;
    all_.revoked.push_back(token);
    if (all_.revoked.size() > kMostRevoked) all_.revoked.pop_front();
    for (const auto& target : targets_) {
      if (same_token(target->engine(), engine_of(token))) target->end();
    }
    known_.erase(known);
  }
  const auto link = initiators_.find(agent);
  if (link != initiators_.end()) link->second->end();
  drop_failed();
}

void Core::fetch(Notifications& out) {
  progress_by_caller();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& note : all_.notifications) out.push_back(std::move(note));
  all_.notifications.clear();
  all_.notification_bytes = 0;
  for (const auto& target : targets_) target->forget_notifications();
}

Status Core::notify(const std::string& agent, const std::string& text) {
  if (text.size() > kMaxNotification) {
    return refuse(kInvalidParam, "a notification of " + std::to_string(text.size()) +
                                     " bytes: at most " + std::to_string(kMaxNotification));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (agent == all_.agent) {
    all_.notify(agent, text);
    return kSuccess;
  }
  Initiator* link = link_to(agent);
  if (link == nullptr) return refuse_unknown(agent);
  link->notify(text);
  return link->stage() == LinkStage::kFailed ? kRemoteDisconnect : kSuccess;
}

// --- Progress

void Core::watch(AgentLink& link) {
  if (link.is_watched() || link.fd() < 0 || link.stage() == LinkStage::kDialing) return;
  try {
    add_to(epoll_, link.fd(), &link);
    link.watched();
  } catch (const std::runtime_error& error) {
    link.fail(kBackend, error.what());
  }
}

// The oldest of those who have not proved by now that they know us. False: there is none.
bool Core::give_way() {
  for (const auto& target : targets_) {
    if (!target->is_stranger() || target->stage() == LinkStage::kFailed) continue;
    target->read();  // what it has said meanwhile
    if (!target->is_stranger()) continue;
    target->fail(kNotAllowed, "it gave way to others");
    return true;
  }
  return false;
}

bool Core::take_connections() {
  auto strangers = std::count_if(targets_.begin(), targets_.end(),
                                 [](const auto& target) { return target->is_stranger(); });
  for (int taken = 0; taken < kConnectionsARound; ++taken) {
    bool lacks_files = false;
    Socket one = listener_.accept(&lacks_files);
    if (one.fd() < 0 && lacks_files && !give_way()) listener_.turn_away();
    if (one.fd() < 0) return taken > 0;
    if (++strangers > kMostStrangers && give_way()) --strangers;
    targets_.push_back(std::make_unique<Target>(all_, std::move(one)));
    watch(*targets_.back());
    targets_.back()->read();
  }
  return true;
}

// They may be many: a line for the first, the second, the fourth and so on.
void Core::tell_of_stranger(const AgentLink& link) {
  ++sent_away_;
  if ((sent_away_ & (sent_away_ - 1)) != 0) return;
  report(all_.agent, "connections sent away that did not prove to know this agent's metadata: " +
                         std::to_string(sent_away_) + "; the last: " + link.reason());
}

void Core::drop_failed() {
  auto is_over = [&](const auto& link) {
    if (link->stage() != LinkStage::kFailed) return false;
    if (link->is_stranger()) {
      tell_of_stranger(*link);
    } else if (link->lost_work())
      report(all_.agent, link->reason());
    return true;
  };
  for (auto at = initiators_.begin(); at != initiators_.end();) {
    at = is_over(at->second) ? initiators_.erase(at) : std::next(at);
  }
  targets_.erase(std::remove_if(targets_.begin(), targets_.end(), is_over), targets_.end());
}

bool Core::round() {
  bool moved = false;
  epoll_event events[kMostEvents];
  const int ready = epoll_wait(epoll_.fd(), events, kMostEvents, 0);
  for (int i = 0; i < ready; ++i) {
    void* what = events[i].data.ptr;
    if (what == &wake_) {
      uint64_t count;
      if (::read(wake_.fd(), &count, sizeof(count)) < 0) continue;  // another round had it
    } else if (what == &listener_) {
      moved |= take_connections();
    } else {
      static_cast<AgentLink*>(what)->read();
    }
  }
  bool path = false;
  each_link([&](const AgentLink& link) { path |= link.uses_path(); });
  if (path || !path_->idle()) moved |= path_->progress();
  const int64_t now = now_ns();
  bool over = false;
  each_link([&](AgentLink& link) {
    moved |= link.run(now);
    watch(link);
    over |= link.stage() == LinkStage::kFailed;
  });
  if (over) drop_failed();
  return copy_some() || moved;
}

bool Core::active() const {
  bool any = !copies_.empty() || !path_->idle();
  each_link([&](const AgentLink& link) { any |= link.active(); });
  return any;
}

void Core::progress_by_caller() {
  caller_rounds_.fetch_add(1, std::memory_order_relaxed);
  bool moved = true;
  {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock) moved = round();
  }
  if (!moved) sched_yield();  // whoever is to answer may need this core
}

void Core::wake() {
  if (!thread_.joinable() || !sleeping_.load()) return;
  const uint64_t one = 1;
  if (::write(wake_.fd(), &one, sizeof(one)) < 0) return;  // it is awake
}

}  // namespace tcpx::nixl
