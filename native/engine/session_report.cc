// What went wrong with a session, and where its comms stand.
#include "engine/session.h"

namespace tcpx {

void Session::fail(const MessageFlow&, const Chunk<Part>& chunk, const FlowFault& fault) {
  static_cast<FlowFault&>(fault_) = fault;
  if (plugin_log::warnings() > warnings_before_) fault_.said = plugin_log::last_warning();
  fault_.chunk = chunk.part.chunk;
  fault_.transfer = chunk.part.message->transfer;
  fault_.message = chunk.part.message->number;
}

void Session::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed()) fault_.kind = FaultKind::kStopped;
}

size_t Session::pending(std::optional<Direction> direction) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (refusal_) std::rethrow_exception(refusal_);
  return connections_.pending(direction);
}

bool Session::begun() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connections_.begun();
}

bool Session::connecting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !closed_ && !refusal_ && connections_.pending() > 0;
}

bool Session::transferring() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !closed_ && !failed() && messages_[0].size() + messages_[1].size() > 0;
}

void Session::close_listeners() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) connections_.close_listeners();
}

std::string Session::describe_late(double patience_s) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connections_.describe_late(patience_s);
}

TransferFault Session::fault() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return fault_;
}

std::vector<TransferPicture> Session::picture() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = now_ns();
  std::vector<TransferPicture> rows;
  for (const MessageFlow& flow : flows_) {
    TransferPicture row;
    flow.draw(&row);
    const auto& queue = flow.source.queue;
    row.queued = queue.size();
    const bool is_posted = flow.posted != flow.finished;
    if (is_posted || !queue.empty()) {
      const Part oldest =
          is_posted ? flow.oldest().part : Part{queue.front().message, queue.front().next};
      row.oldest_transfer = oldest.message->transfer;
      row.oldest_message = oldest.message->number;
      row.oldest_chunk = oldest.chunk;
      row.oldest_bytes = chunk_bytes(*oldest.message, oldest.chunk);
    }
    if (is_posted) row.oldest_age_ns = now - flow.oldest().posted_at;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace tcpx
