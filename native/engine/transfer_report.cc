// What went wrong with a session, and where its comms stand.
#include <algorithm>

#include "engine/clock.h"
#include "engine/transfer.h"

namespace tcpx {

void PeerSession::fail(TransferFault::Kind kind, const char* call, int code, const Flow& flow,
                       const Slot& slot) {
  fault_ = {kind,
            call,
            code,
            flow.comm->direction,
            flow.comm->channel,
            slot.message->transfer,
            slot.message->number,
            slot.chunk,
            slot.bytes,
            plugin_log::warnings() > warnings_before_ ? plugin_log::last_warning()
                                                      : plugin_log::kNoPlace};
}

TransferFault PeerSession::fault() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return fault_;
}

std::vector<TransferPicture> PeerSession::picture() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = now_ns();
  std::vector<TransferPicture> rows;
  for (const Flow& flow : flows_) {
    TransferPicture row{};
    row.direction = flow.comm->direction;
    row.channel = flow.comm->channel;
    row.window = flow.window;
    row.posted = flow.posted;
    row.arrived = flow.tested;
    row.finished = flow.finished;
    row.bytes = flow.bytes;
    row.queued = flow.queue.size();
    row.has_oldest = flow.finished != flow.posted;
    if (row.has_oldest) {
      const Slot& oldest = flow.slots[flow.finished % kNetMaxRequests];
      row.oldest_transfer = oldest.message->transfer;
      row.oldest_message = oldest.message->number;
      row.oldest_chunk = oldest.chunk;
      row.oldest_bytes = oldest.bytes;
      row.oldest_age_ns = now - oldest.posted_at;
    } else if (!flow.queue.empty()) {
      const Share& next = flow.queue.front();
      row.oldest_transfer = next.message->transfer;
      row.oldest_message = next.message->number;
      row.oldest_chunk = next.next;
      row.oldest_bytes = chunk_bytes(*next.message, next.next);
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tcpx
