#include "engine/flow.h"

#include <stdexcept>
#include <string>

namespace tcpx {

void FlowCounts::draw(FlowPicture* picture) const {
  picture->kind = kind;
  picture->channel = channel;
  picture->window = window;
  picture->posted = posted;
  picture->arrived = kind == FlowKind::kReceive ? tested : finished;
  picture->flushing = static_cast<uint64_t>(flushing);
  picture->completed = finished;
  picture->bytes = bytes;
}

FlowFault flush_moves(Unpacker& mover) {
  mover.flush();
  const UnpackFailure failure = mover.failure();
  FlowFault fault;
  if (failure.code == 0) return fault;
  fault.kind = FaultKind::kGpu;
  fault.call = failure.call;
  fault.code = failure.code;
  return fault;
}

void check_windows(int send, int receive) {
  for (const int window : {send, receive}) {
    if (window < 1 || window > kNetMaxRequests) {
      throw std::invalid_argument("a window of " + std::to_string(window) + " requests");
    }
  }
}

}  // namespace tcpx
