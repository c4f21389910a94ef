#include "engine/timed_loop.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace tcpx {
namespace {

constexpr size_t kLine = 64;

bool computes(const Program& program) {
  const auto works = [](const ChunkOp& op) { return op.work != ChunkWork::kMove; };
  return std::any_of(program.queues.begin(), program.queues.end(), [&](const ChunkQueue& queue) {
    return std::any_of(queue.ops.begin(), queue.ops.end(), works);
  });
}

}  // namespace

TimedLoop::TimedLoop(Net& net, Connections& connections, const TimedLoopLimits& limits,
                     Unpacker* unpacker, Unpacker* copier)
    : BatchLoop(limits.spins_before_yield, limits.flushes),
      net_(net),
      connections_(connections),
      limits_(limits),
      unpacker_(unpacker),
      copier_(copier) {
  check_windows(limits.window_send, limits.window_receive);
}

void TimedLoop::load(Program program, const SlotBase* buffers) {
  set_row(std::move(program), buffers);
  flows_.clear();
  for (const ChunkQueue& queue : this->program().queues) {
    ScheduledFlow flow{Cursor(queue)};
    flow.kind = queue.kind;
    flow.channel = queue.channel;
    if (queue.kind == FlowKind::kCopy) {
      flow.window = copier_ != nullptr ? kNetMaxRequests : 1;
      flow.mover = copier_;
    } else {
      use_comm(flow, queue);
    }
    flows_.push_back(flow);
  }
  for (Unpacker* unpacker : {unpacker_, copier_}) {
    if (unpacker == nullptr) continue;
    unpacker->reserve(flows_.size() * kNetMaxRequests);
    if (computes(this->program())) unpacker->prepare(this->program().arithmetic);
  }
}

void TimedLoop::use_comm(ScheduledFlow& flow, const ChunkQueue& queue) {
  const bool sends = queue.kind == FlowKind::kSend;
  Comm* comm = connections_.find(sends ? Direction::kSend : Direction::kReceive, queue.peer,
                                 queue.lane, queue.channel);
  if (comm == nullptr || comm->comm == nullptr) {
    throw std::invalid_argument("no connection to rank " + std::to_string(queue.peer) + ", lane " +
                                std::to_string(queue.lane) + ", channel " +
                                std::to_string(queue.channel));
  }
  flow.window = sends ? limits_.window_send : limits_.window_receive;
  flow.comm = comm;
  if (!sends && unpacker_ != nullptr) {
    flow.mover = unpacker_;
    flow.queue = comm->unpack_queue();
    if (flow.queue == nullptr) {
      throw std::invalid_argument("the plugin gave no descriptor queue " + describe(*comm));
    }
  }
  if (!sends && unpacker_ == nullptr) use_staging(flow, queue);
  for (int buffer = 0; buffer < kBuffers; ++buffer) {
    const bool hidden = !sends && unpacker_ == nullptr && limits_.flushes &&
                        connections_.pointer_of(buffer) == kNetPtrCuda;
    flow.source.flushed_buffers |= uint32_t{hidden} << buffer;
  }
  for (const ChunkOp& op : queue.ops) {
    if (comm->mhandles[op.buffer].empty()) {
      throw std::invalid_argument("buffer " + std::to_string(op.buffer) + " is not registered");
    }
  }
}

void TimedLoop::use_staging(ScheduledFlow& flow, const ChunkQueue& queue) {
  size_t most = 0;
  int buffer = -1;
  for (const ChunkOp& op : queue.ops) {
    if (op.work != ChunkWork::kReduce) continue;
    buffer = op.buffer;
    most = std::max<size_t>(most, op.bytes);
  }
  if (buffer < 0) return;
  flow.mover = copier_;
  flow.source.staging_stride = (most + kLine - 1) / kLine * kLine;
  connections_.stage(*flow.comm, flow.window * flow.source.staging_stride, buffer);
  flow.source.staging = flow.comm->staging->data();
  flow.source.staging_mhandle = flow.comm->staging_mhandles.front();
}

void TimedLoop::begin_flows() {
  for (ScheduledFlow& flow : flows_) {
    flow.restart();
    flow.source.rewind(first_slot(), iterations());
  }
}

bool TimedLoop::sweep() { return sweep_for(*this); }

void TimedLoop::flush_movers() {
  for (Unpacker* mover : {unpacker_, copier_}) {
    if (mover == nullptr) continue;
    const FlowFault fault = flush_moves(*mover);
    if (fault.kind != FaultKind::kNone) fail(Fault{fault});
  }
}

void TimedLoop::fail(const ScheduledFlow& flow, const Chunk<Part>& chunk,
                     const FlowFault& of_chunk) {
  Fault fault{of_chunk};
  fault.said = plugin_log::last_warning();
  fault.chunk = chunk.part.op->chunk;
  fault.flow = static_cast<int>(&flow - flows_.data());
  fault.iteration = chunk.part.iteration;
  fault.step = chunk.part.op->step;
  fail(fault);
}

// A request that is tested is the oldest that is not known to be done; one that is posted is next.
Fault TimedLoop::in_call() const {
  Fault fault;
  fault.kind = FaultKind::kHang;
  const watch::InCall call = heartbeat().call();
  const auto* flow = static_cast<const ScheduledFlow*>(heartbeat().flow());
  if (flow == nullptr) return fault;
  const bool posts = call == watch::InCall::kPost;
  fault.call = posts ? (flow->kind == FlowKind::kSend ? "isend" : "irecv") : watch::call_name(call);
  const uint64_t number = call == watch::InCall::kConsumed    ? flow->finished
                          : call == watch::InCall::kTestFlush ? flow->flushed
                                                              : flow->tested;
  const Part part = posts ? Part{&flow->source.next_op(), flow->source.iteration}
                          : flow->chunks[number % kNetMaxRequests].part;
  fault.flow = static_cast<int>(flow - flows_.data());
  fault.direction = flow->kind;
  fault.channel = flow->channel;
  if (part.op == nullptr) return fault;
  fault.bytes = part.op->bytes;
  fault.chunk = part.op->chunk;
  fault.step = part.op->step;
  fault.iteration = part.iteration;
  return fault;
}

void TimedLoop::take_picture(FlowReport* picture) const {
  for (size_t i = 0; i < flows_.size(); ++i) {
    const ScheduledFlow& flow = flows_[i];
    FlowReport& report = picture[i];
    flow.draw(&report);
    report.peer = program().queues[i].peer;
    report.lane = program().queues[i].lane;
    const bool is_posted = flow.posted != flow.finished;
    const Part oldest =
        is_posted ? flow.oldest().part : Part{&flow.source.next_op(), flow.source.iteration};
    report.finished = oldest.iteration >= iterations();
    report.oldest_iteration = oldest.iteration;
    report.oldest_step = oldest.op->step;
    report.oldest_chunk = oldest.op->chunk;
    report.oldest_bytes = oldest.op->bytes;
    report.oldest_age_ns = is_posted ? coarse_now() - flow.oldest().posted_at : -1;
  }
}

}  // namespace tcpx
