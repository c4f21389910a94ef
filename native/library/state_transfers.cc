// Messages of a session: posted, looked at, waited for; what is thrown where that cannot be.
#include <new>
#include <stdexcept>

#include "cuda/driver.h"
#include "engine/clock.h"
#include "library/state.h"
#include "library/times.h"
#include "library/words.h"
#include "net/logger.h"

namespace tcpx_p2p {
namespace {

constexpr double kStallSlackS = 0.5;  // a stall is noticed so much later, at most

}  // namespace

void SessionState::post(RemoteState& remote, uint64_t transfer, tcpx::Direction direction,
                        const Piece* pieces, size_t count) {
  require_open();
  remote.require_alive();
  std::vector<tcpx::MessagePlace> places(count);
  for (size_t i = 0; i < count; ++i) {
    places[i] = {pieces[i].mem_id, pieces[i].offset, pieces[i].bytes};
  }
  if (takes_cuda_) shift(pieces, count, &places);
  const Counted calling(callers_);
  try {
    remote.link().post(transfer, direction, places.data(), count);
  } catch (const tcpx::NoSuchMemory&) {
    explain(pieces, count);
  } catch (const std::out_of_range&) {
    explain(pieces, count);
  } catch (const tcpx::NoConnections& error) {
    const bool sends = direction == tcpx::Direction::kSend;
    throw UsageError(Status::kNotConnected,
                     remote.prefix() + error.what() + ": " +
                         (sends ? "connect() or establish() comes before a send"
                                : "accept() or establish() comes before a receive"));
  } catch (const tcpx::NoSuchTransfer&) {
    throw UsageError(Status::kReleased,
                     "transfer " + std::to_string(transfer) + " was released: create another");
  } catch (const tcpx::SessionClosed&) {
    throw UsageError(Status::kClosed, closed_text(remote));
  } catch (const tcpx::PluginError& refusal) {
    throw FatalError(Status::kSetupFailed, remote.prefix() + refusal.what());
  } catch (const tcpx::CudaError& refusal) {
    throw FatalError(Status::kSetupFailed, remote.prefix() + refusal.what());
  } catch (const std::bad_alloc&) {
    throw FatalError(Status::kOutOfMemory, "the system has no memory for these messages");
  }
  wake();
}

TransferStage SessionState::stage(RemoteState& remote, uint64_t transfer) const {
  require_open();
  try {
    switch (remote.link().look(transfer)) {
      case tcpx::TransferState::kComplete:
        return TransferStage::kComplete;
      case tcpx::TransferState::kFailed:
        return TransferStage::kFailed;
      case tcpx::TransferState::kActive:
        break;
    }
  } catch (const tcpx::NoSuchTransfer&) {
    throw UsageError(Status::kReleased,
                     "transfer " + std::to_string(transfer) + " was released: create another");
  }
  if (remote.stage() == RemoteStage::kClosed) {
    throw UsageError(Status::kClosed, closed_text(remote) + " while transfer " +
                                          std::to_string(transfer) + " was under way");
  }
  return TransferStage::kActive;
}

bool SessionState::is_complete(RemoteState& remote, uint64_t transfer) {
  require_open();
  if (!threaded()) progress();
  const TransferStage found = stage(remote, transfer);
  if (found == TransferStage::kFailed) remote.require_alive();
  return found == TransferStage::kComplete;
}

void SessionState::wait(RemoteState& remote, uint64_t transfer, double timeout_s) {
  require_open();
  const double patience = patience_s(timeout_s, options_.stall_timeout_s);
  tcpx::WaitResult result;
  try {
    result = threaded() ? wait_for_thread(remote, transfer, in_ns(patience))
                        : remote.link().wait(transfer, in_ns(patience), options_.while_waiting);
  } catch (const tcpx::NoSuchTransfer&) {
    throw UsageError(Status::kReleased,
                     "transfer " + std::to_string(transfer) + " was released: create another");
  }
  switch (result) {
    case tcpx::WaitResult::kComplete:
      return;
    case tcpx::WaitResult::kStalled: {
      const int64_t since = tcpx::now_ns() - in_ns(patience + kStallSlackS);
      throw TimeoutError(Status::kTimedOut,
                         remote.prefix() + stall_text(transfer, patience, remote.link().picture(),
                                                      tcpx::plugin_log::quote_since(since)));
    }
    case tcpx::WaitResult::kClosed:
      throw UsageError(Status::kClosed, closed_text(remote) + " while transfer " +
                                            std::to_string(transfer) + " was under way");
    case tcpx::WaitResult::kFailed:
      remote.require_alive();
  }
}

}  // namespace tcpx_p2p
