// Memory that the messages of a session may name, and the comms that it is registered with.
#include <utility>

#include "cuda/gpu.h"
#include "engine/session.h"

namespace tcpx {
namespace {

// Several registrations of which all succeed, or none stays.
class Registrations {
 public:
  Registrations(Net& net, bool dma_buf) : net_(net), dma_buf_(dma_buf) {}
  ~Registrations() {
    for (const auto& [comm, mhandle] : undo_) net_.dereg_mr(comm, mhandle);
  }
  void add(const Comm& comm, uint8_t* data, size_t bytes, int type) {
    regions_.push_back(
        register_regions(net_, comm, data, bytes, {type, dma_buf_ && type == kNetPtrCuda}));
    for (void* mhandle : regions_.back()) undo_.emplace_back(comm.comm, mhandle);
  }
  std::vector<std::vector<void*>> take() {
    undo_.clear();
    return std::move(regions_);
  }

 private:
  Net& net_;
  const bool dma_buf_;
  std::vector<std::vector<void*>> regions_;  // an entry a call of add
  std::vector<std::pair<void*, void*>> undo_;
};

}  // namespace

// Takes over the comms that have come up, with all memory registered.
void Session::adopt_comms() {
  for (const auto& comm : connections_.comms()) {
    MessageFlow*& flow = flow_of_[comm->direction == Direction::kSend ? 0 : 1].at(comm->channel);
    if (comm->comm == nullptr || flow != nullptr) continue;
    Registrations added(net_, dma_buf_);
    for (auto& [id, memory] : memories_) {
      if (!memory.on_use) added.add(*comm, memory.data, memory.bytes, memory.type);
    }
    flows_.emplace_back();
    flow = &flows_.back();
    const bool sends = comm->direction == Direction::kSend;
    flow->kind = sends ? FlowKind::kSend : FlowKind::kReceive;
    flow->channel = comm->channel;
    flow->comm = comm.get();
    comm->reports_sizes = limits_.tells_sizes;
    flow->window = sends ? limits_.window_send : limits_.window_receive;
    flow->queue = comm->unpack_queue();
    flow->mover = unpacker_.get();
    flow->source.index = flows_.size() - 1;
    auto regions = added.take();
    auto next = regions.begin();
    for (auto& [id, memory] : memories_) {
      memory.mhandles.emplace_back();
      if (!memory.on_use) memory.mhandles.back() = std::move(*next++);
    }
  }
}

int Session::register_memory(uint8_t* data, size_t bytes, int type) {
  int id;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    id = next_memory_++;
  }
  add_memory(id, data, bytes, type, false);
  return id;
}

void Session::add_memory(uint64_t id, uint8_t* data, size_t bytes, int type, bool on_use) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) throw SessionClosed();
  Memory memory{data, bytes, type, on_use, {}};
  memory.mhandles.resize(flows_.size());
  if (!on_use) {
    std::vector<MessageFlow*> all;
    for (MessageFlow& flow : flows_) all.push_back(&flow);
    register_with(all, memory);
  }
  memories_.emplace(id, std::move(memory));
}

// With those of these comms that do not know it yet.
void Session::register_with(const std::vector<MessageFlow*>& flows, Memory& memory) {
  std::vector<size_t> strangers;
  for (const MessageFlow* flow : flows) {
    if (memory.mhandles[flow->source.index].empty()) strangers.push_back(flow->source.index);
  }
  if (strangers.empty()) return;
  const GpuCurrent current(gpu_);
  Registrations added(net_, dma_buf_);
  for (const size_t index : strangers) {
    added.add(*flows_[index].comm, memory.data, memory.bytes, memory.type);
  }
  auto regions = added.take();
  auto next = regions.begin();
  for (const size_t index : strangers) memory.mhandles[index] = std::move(*next++);
}

void Session::deregister_memory(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const GpuCurrent current(gpu_);
  const auto found = memories_.find(id);
  if (found == memories_.end()) throw NoSuchMemory();
  if (found->second.messages > 0) throw MemoryInUse(found->second.messages);
  if (closed_) {  // and with it all that was registered
    memories_.erase(found);
    return;
  }
  const Memory memory = std::move(found->second);
  memories_.erase(found);
  for (const MessageFlow& flow : flows_) {
    for (void* mhandle : memory.mhandles[flow.source.index]) {
      const int code = net_.dereg_mr(flow.comm->comm, mhandle);
      if (code != kNetSuccess) throw PluginError("deregMr", code, describe(*flow.comm));
    }
  }
}

}  // namespace tcpx
