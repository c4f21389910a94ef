#include "library/remote.h"

#include "library/words.h"

namespace tcpx_p2p {

Status RemoteState::status(std::string* text) const {
  text->clear();
  if (closed_) {
    *text = prefix() + "its connections were closed";
    return Status::kClosed;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reason_.empty()) {
      *text = prefix() + reason_;
      return Status::kRemoteFailed;
    }
  }
  const tcpx::TransferFault fault = link_.fault();
  if (fault.kind != tcpx::FaultKind::kNone) {
    *text = prefix() + text_of(fault);
    return status_of(fault);
  }
  if (settled_) return Status::kOk;
  try {
    link_.pending(std::nullopt);
  } catch (const std::exception& refusal) {
    *text = prefix() + refusal.what();
    return Status::kSetupFailed;
  }
  return Status::kOk;
}

void RemoteState::require_alive() const {
  std::string text;
  const Status found = status(&text);
  if (found == Status::kOk) return;
  if (found == Status::kClosed) throw UsageError(found, text);
  throw FatalError(found, text);
}

RemoteStage RemoteState::stage() const {
  if (closed_) return RemoteStage::kClosed;
  std::string text;
  if (status(&text) != Status::kOk) return RemoteStage::kFailed;
  if (!listens || !loaded) return RemoteStage::kNew;
  return link_.connecting() ? RemoteStage::kConnecting : RemoteStage::kConnected;
}

template <typename Step>
bool RemoteState::keeping_failures(const Step& step) {
  if (closed_) return false;
  try {
    const bool moved = step();
    if (moved && !settled_ && listens && loaded && !link_.connecting()) {
      link_.close_listeners();
      settled_ = true;
    }
    return moved;
  } catch (const std::exception& error) {
    fail(error.what());
    return false;
  }
}

bool RemoteState::advance(tcpx::SetupRound& setup) {
  return keeping_failures([&] { return link_.advance(setup); });
}

bool RemoteState::accept() {
  return keeping_failures([&] { return link_.accept(); });
}

void RemoteState::fail(const std::string& reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!reason_.empty() || link_.fault().kind != tcpx::FaultKind::kNone) return;
    reason_ = reason.empty() ? "was given up" : reason;
  }
  link_.end();
}

void RemoteState::close() {
  closed_ = true;
  link_.close();
}

}  // namespace tcpx_p2p
