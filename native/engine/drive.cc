#include "engine/drive.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tcpx {
namespace {

constexpr int kTag = 99;  // some plugins match by tag: equal on both sides

}  // namespace

Driver::Driver(Net& net, const Connections& connections, const DriveLimits& limits,
               Unpacker* unpacker, Unpacker* copier)
    : BatchLoop(limits.spins_before_yield),
      net_(net),
      connections_(connections),
      limits_(limits),
      unpacker_(unpacker),
      copier_(copier) {
  for (const int window : {limits.window_send, limits.window_receive}) {
    if (window < 1 || window > kNetMaxRequests) {
      throw std::invalid_argument("a window of " + std::to_string(window) + " requests");
    }
  }
}

void Driver::load(Program program, const SlotBase* buffers) {
  set_row(std::move(program), buffers);
  flows_.clear();
  for (const ChunkQueue& queue : this->program().queues) {
    Flow flow(queue);
    if (queue.kind == FlowKind::kCopy) {
      flow.window = copier_ != nullptr ? kNetMaxRequests : 1;
    } else {
      const bool sends = queue.kind == FlowKind::kSend;
      Comm* comm = connections_.find(sends ? Direction::kSend : Direction::kReceive, queue.peer,
                                     queue.lane, queue.channel);
      if (comm == nullptr || comm->comm == nullptr) {
        throw std::invalid_argument("no connection to rank " + std::to_string(queue.peer) +
                                    ", lane " + std::to_string(queue.lane) + ", channel " +
                                    std::to_string(queue.channel));
      }
      flow.window = sends ? limits_.window_send : limits_.window_receive;
      flow.comm = comm->comm;
      flow.mhandles = comm->mhandles;
      if (!sends && unpacker_ != nullptr) {
        flow.queue = comm->unpack_queue();
        flow.sequence = &comm->receives_done;
        if (flow.queue == nullptr) {
          throw std::invalid_argument("the plugin gave no descriptor queue " + describe(*comm));
        }
      }
      for (const ChunkOp& op : queue.ops) {
        if (comm->mhandles[op.buffer].empty()) {
          throw std::invalid_argument("buffer " + std::to_string(op.buffer) + " is not registered");
        }
      }
    }
    flows_.push_back(flow);
  }
  for (Unpacker* unpacker : {unpacker_, copier_}) {
    if (unpacker != nullptr) unpacker->reserve(flows_.size() * kNetMaxRequests);
  }
}

void Driver::begin_flows() {
  for (Flow& flow : flows_) {
    flow.post_op = flow.head_op = 0;
    flow.post_iteration = flow.head_iteration = 0;
    flow.posted = flow.tested = flow.completed = flow.bytes = 0;
    flow.test_op = 0;
    flow.test_iteration = 0;
  }
}

bool Driver::sweep() {
  bool moved = false;
  for (Flow& flow : flows_) {
    moved |= flow.kind == FlowKind::kCopy ? advance_copies(flow) : advance(flow);
    if (failed()) break;  // a comm that failed may have taken others along: no further call
  }
  for (Unpacker* unpacker : {unpacker_, copier_}) {
    if (unpacker != nullptr) flush(unpacker);
  }
  return moved;
}

// One launch for the receives of all flows that this sweep found finished.
void Driver::flush(Unpacker* unpacker) {
  unpacker->flush();
  const UnpackFailure failure = unpacker->failure();
  if (failure.code == 0) return;
  Fault fault;
  fault.kind = FaultKind::kGpu;
  fault.call = failure.call;
  fault.code = failure.code;
  fail(fault);
}

bool Driver::advance(Flow& flow) {
  bool moved = false;
  if (flow.queue != nullptr) {
    moved = advance_unpacked(flow);
  } else {
    while (flow.completed != flow.posted && test_head(flow)) moved = true;
  }
  // One post a visit: between two posts of a flow every other flow makes progress.
  if (!failed() && may_post(flow)) moved |= post_head(flow);
  return moved;
}

// True when the oldest request of the window is complete and its slot is free again.
bool Driver::test_head(Flow& flow) {
  if (!is_done(flow, flow.completed, flow.head_op, flow.head_iteration)) return false;
  return flow.kind == FlowKind::kReceive ? consume_head(flow) : (complete(flow), true);
}

// Receives that must be put together: done by the plugin, unpacked, consumed, each in order.
bool Driver::advance_unpacked(Flow& flow) {
  bool moved = false;
  while (flow.tested != flow.posted && begin_unpack(flow)) moved = true;
  while (!failed() && flow.completed != flow.tested &&
         flow.tickets[flow.completed % kNetMaxRequests] <= unpacker_->finished() &&
         consume_head(flow)) {
    moved = true;
  }
  return moved;
}

bool Driver::begin_unpack(Flow& flow) {
  if (!is_done(flow, flow.tested, flow.test_op, flow.test_iteration)) return false;
  const ChunkOp& op = flow.ops[flow.test_op];
  const UnpackResult result =
      unpacker_->submit(unpack_source(*flow.queue, (*flow.sequence)++, op.bytes),
                        address(op.buffer, flow.test_iteration, op.offset), op.bytes);
  // TCPX never tells a size: what was received is the sum of the fragments.
  if (!result.in_bounds || result.bytes != op.bytes) {
    fail_call(FaultKind::kSize, "test", size_code(result.bytes), flow, flow.test_op,
              flow.test_iteration);
    return false;
  }
  flow.tickets[flow.tested % kNetMaxRequests] = unpacker_->last_ticket();
  ++flow.tested;
  if (++flow.test_op == flow.n_ops) {
    flow.test_op = 0;
    ++flow.test_iteration;
  }
  return true;
}

// Asks for one request, the oldest that is not known to be done; once done it is not asked again.
bool Driver::is_done(Flow& flow, uint64_t index, uint32_t op, uint64_t iteration) {
  int done = 0;
  int sizes[1] = {0};
  const int code = net_.test(flow.requests[index % kNetMaxRequests], &done, sizes);
  if (code != kNetSuccess) {
    fail_call(FaultKind::kPlugin, "test", code, flow, op, iteration);
    return false;
  }
  if (!done) return false;
  // TCPX never writes the size; a plugin that does must agree with what was sent.
  if (flow.kind == FlowKind::kReceive && sizes[0] != 0 &&
      static_cast<uint32_t>(sizes[0]) != flow.ops[op].bytes) {
    fail_call(FaultKind::kSize, "test", sizes[0], flow, op, iteration);
    return false;
  }
  return true;
}

// The oldest receive is in place: its slot, and what the plugin keeps for it, are free again.
bool Driver::consume_head(Flow& flow) {
  if (net_.offers_consumed()) {
    void* request = flow.requests[flow.completed % kNetMaxRequests];
    const int code = net_.irecv_consumed(flow.comm, 1, request);
    if (code != kNetSuccess) {
      fail_call(FaultKind::kPlugin, "irecvConsumed", code, flow, flow.head_op, flow.head_iteration);
      return false;
    }
  }
  complete(flow);
  return true;
}

bool Driver::may_post(const Flow& flow) const {
  if (flow.posted - flow.completed >= static_cast<uint64_t>(flow.window)) return false;
  return may_begin(flow.kind, flow.ops[flow.post_op], flow.post_iteration);
}

bool Driver::post_head(Flow& flow) {
  const ChunkOp& op = flow.ops[flow.post_op];
  uint8_t* data = address(op.buffer, flow.post_iteration, op.offset);
  const uint64_t at = slot_start(op.buffer, flow.post_iteration) + op.offset;
  void* mhandle = flow.mhandles[op.buffer][at >> kRegionShift];
  void* request = nullptr;
  int code;
  if (flow.kind == FlowKind::kSend) {
    code = net_.isend(flow.comm, data, op.bytes, kTag, mhandle, &request);
  } else {
    void* pointer = data;
    size_t bytes = op.bytes;
    int tag = kTag;
    code = net_.irecv(flow.comm, 1, &pointer, &bytes, &tag, &mhandle, &request);
  }
  if (code != kNetSuccess) {
    fail_call(FaultKind::kPlugin, flow.kind == FlowKind::kSend ? "isend" : "irecv", code, flow,
              flow.post_op, flow.post_iteration);
    return false;
  }
  if (request == nullptr) return false;  // busy: the same chunk again at the next visit
  flow.requests[flow.posted % kNetMaxRequests] = request;
  note_posted(flow);
  return true;
}

void Driver::note_posted(Flow& flow) {
  flow.posted_at[flow.posted % kNetMaxRequests] = coarse_now();
  ++flow.posted;
  if (++flow.post_op == flow.n_ops) {
    flow.post_op = 0;
    ++flow.post_iteration;
  }
}

bool Driver::advance_copies(Flow& flow) {
  bool moved = false;
  while (copier_ != nullptr && flow.completed != flow.posted &&
         flow.tickets[flow.completed % kNetMaxRequests] <= copier_->finished()) {
    complete(flow);
    moved = true;
  }
  return begin_copy(flow) || moved;
}

bool Driver::begin_copy(Flow& flow) {
  if (!may_post(flow)) return false;
  const ChunkOp& op = flow.ops[flow.post_op];
  const uint64_t index = flow.posted % kNetMaxRequests;
  const uint64_t iteration = flow.post_iteration;
  note_posted(flow);
  if (copier_ == nullptr) {
    copy_chunk(op, iteration);
    complete(flow);
  } else {
    copier_->copy(address(op.buffer, iteration, op.offset),
                  address(op.source_buffer, iteration, op.source), op.bytes);
    flow.tickets[index] = copier_->last_ticket();
  }
  return true;
}

void Driver::complete(Flow& flow) {
  const ChunkOp& op = flow.ops[flow.head_op];
  ++flow.completed;
  const uint64_t iteration = flow.head_iteration;
  const bool last = ++flow.head_op == flow.n_ops;
  if (last) {
    flow.head_op = 0;
    ++flow.head_iteration;
  }
  flow.bytes += op.bytes;
  finish_chunk(flow, op, iteration, last);
}

void Driver::fail_call(FaultKind kind, const char* call, int code, const Flow& flow, uint32_t op,
                       uint64_t iteration) {
  Fault fault;
  fault.kind = kind;
  fault.call = call;
  fault.code = code;
  fault.flow = static_cast<int>(&flow - flows_.data());
  fault.iteration = iteration;
  fault.chunk = flow.ops[op].chunk;
  fault.step = flow.ops[op].step;
  fault.said = plugin_log::last_warning();
  fail(fault);
}

void Driver::take_picture(FlowReport* picture) const {
  for (size_t i = 0; i < flows_.size(); ++i) {
    const Flow& flow = flows_[i];
    const ChunkQueue& queue = program().queues[i];
    FlowReport& report = picture[i];
    report.kind = flow.kind;
    report.peer = queue.peer;
    report.lane = queue.lane;
    report.channel = queue.channel;
    report.window = flow.window;
    report.posted = flow.posted;
    report.arrived = std::max(flow.tested, flow.completed);
    report.completed = flow.completed;
    report.bytes = flow.bytes;
    report.finished = flow.head_iteration >= iterations();
    const ChunkOp& op = flow.ops[flow.head_op];
    report.oldest_iteration = flow.head_iteration;
    report.oldest_step = op.step;
    report.oldest_chunk = op.chunk;
    report.oldest_bytes = op.bytes;
    report.oldest_age_ns = flow.posted == flow.completed
                               ? -1
                               : coarse_now() - flow.posted_at[flow.completed % kNetMaxRequests];
  }
}

}  // namespace tcpx
