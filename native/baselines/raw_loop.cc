#include "baselines/raw_loop.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/clock.h"

namespace tcpx {
namespace {

// One call moves at most this, so that every other flow has its turn: what iperf3 -l 1M does.
constexpr size_t kMostACall = size_t{1} << 20;
constexpr int kRestMs = 1;

}  // namespace

RawLoop::RawLoop(const RawLinks& links, int spins_before_yield)
    : BatchLoop(spins_before_yield), links_(links), sleeps_(spins_before_yield == 0) {}

void RawLoop::load(Program program, const SlotBase* buffers) {
  set_row(std::move(program), buffers);
  flows_.clear();
  for (const ChunkQueue& queue : this->program().queues) {
    Flow flow(queue);
    if (queue.kind == FlowKind::kSend) {
      flow.fd = links_.send_socket(queue.peer, queue.lane, queue.channel);
    } else if (queue.kind == FlowKind::kReceive) {
      flow.fd = links_.receive_socket(queue.peer, queue.lane, queue.channel);
    }
    flows_.push_back(flow);
  }
  staging_.clear();
  for (const ChunkQueue& queue : this->program().queues) {
    size_t most = 0;
    for (const ChunkOp& op : queue.ops) {
      if (op.work == ChunkWork::kReduce) most = std::max<size_t>(most, op.bytes);
    }
    staging_.emplace_back(most);
  }
  waiting_.assign(flows_.size(), pollfd{});
}

void RawLoop::begin_flows() {
  const int64_t now = now_ns();
  for (Flow& flow : flows_) {
    flow.rewind(first_slot(), iterations());
    flow.moved = flow.completed = flow.bytes = 0;
    flow.moved_ns = now;
  }
}

bool RawLoop::sweep() {
  bool moved = false;
  for (Flow& flow : flows_) {
    moved |= advance(flow);
    if (failed()) break;
  }
  return moved;
}

// Where ranks have no core of their own, the kernel says when there is something to do.
void RawLoop::rest() {
  if (!sleeps_ || pauses()) return BatchLoop::rest();
  nfds_t count = 0;
  for (const Flow& flow : flows_) {
    if (flow.fd < 0 || !may_begin(flow)) continue;
    const bool sends = flow.kind == FlowKind::kSend;
    waiting_[count++] = {flow.fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
  }
  poll(waiting_.data(), count, kRestMs);
}

bool RawLoop::advance(Flow& flow) {
  if (!may_begin(flow)) return false;
  const ChunkOp& op = flow.next_op();
  if (flow.kind == FlowKind::kCopy) {
    if (op.work == ChunkWork::kPause && !pause_over(op)) return false;
    if (op.bytes != 0) compute_chunk(op, flow.iteration);
    complete(flow, op);
    return true;
  }
  return move_bytes(flow, op);
}

bool RawLoop::move_bytes(Flow& flow, const ChunkOp& op) {
  const bool reduces = op.work == ChunkWork::kReduce;
  std::vector<uint8_t>& staging = staging_[static_cast<size_t>(&flow - flows_.data())];
  uint8_t* data = reduces ? staging.data() : address(op.buffer, flow.iteration, op.offset);
  const size_t size = std::min<size_t>(op.bytes - flow.moved, kMostACall);
  const bool sends = flow.kind == FlowKind::kSend;
  ssize_t n = 0;
  if (size > 0) {
    n = sends ? send(flow.fd, data + flow.moved, size, MSG_DONTWAIT | MSG_NOSIGNAL)
              : recv(flow.fd, data + flow.moved, size, MSG_DONTWAIT);
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n < 0 || (n == 0 && size > 0)) {
    Fault fault;
    fault.kind = FaultKind::kSocket;
    fault.call = sends ? "send" : "recv";
    fault.code = n < 0 ? errno : 0;  // 0: the other side has closed
    fault.flow = static_cast<int>(&flow - flows_.data());
    fault.iteration = flow.iteration;
    fault.direction = flow.kind;
    fault.channel = program().queues[fault.flow].channel;
    fault.chunk = op.chunk;
    fault.bytes = op.bytes;
    fault.step = op.step;
    fail(fault);
    return false;
  }
  flow.moved += static_cast<uint64_t>(n);
  flow.moved_ns = coarse_now();
  if (flow.moved < op.bytes) return true;
  if (reduces) reduce_chunk(op, flow.iteration, data);
  complete(flow, op);
  return true;
}

void RawLoop::complete(Flow& flow, const ChunkOp& op) {
  const uint64_t iteration = flow.iteration;
  flow.moved = 0;
  flow.bytes += op.bytes;
  ++flow.completed;
  flow.step(iterations());
  finish_chunk(flow, op, iteration);
}

void RawLoop::take_picture(FlowReport* picture) const {
  for (size_t i = 0; i < flows_.size(); ++i) {
    const Flow& flow = flows_[i];
    const ChunkQueue& queue = program().queues[i];
    const ChunkOp& op = flow.next_op();
    // A stream has no requests: what waits for the kernel is as one, since it last moved.
    const bool waits = flow.fd >= 0 && may_begin(flow);
    FlowReport& report = picture[i];
    report.kind = flow.kind;
    report.peer = queue.peer;
    report.lane = queue.lane;
    report.channel = queue.channel;
    report.window = 1;
    report.posted = flow.completed + (waits ? 1 : 0);
    report.arrived = report.completed = flow.completed;
    report.bytes = flow.bytes;
    report.finished = flow.iteration >= iterations();
    report.oldest_iteration = flow.iteration;
    report.oldest_step = op.step;
    report.oldest_chunk = op.chunk;
    report.oldest_bytes = op.bytes;
    report.oldest_age_ns = waits ? coarse_now() - flow.moved_ns : -1;
  }
}

}  // namespace tcpx
