// The caller's part of receives that data is put in place of: several in one call, and flushes.
#include "softtcpx/transfer/device.h"
#include "softtcpx/transfer/recv_comm.h"

namespace softtcpx {

int RecvComm::receive_together(const Place* places, int n, void** request) {
  *request = nullptr;
  const uint64_t first = ring_.posted.load(std::memory_order_relaxed);
  if (first + static_cast<uint64_t>(n) - oldest_unfreed() > RequestRing::kSlots)
    return kNetInternalError;
  Ticket* const ticket = in_place_->take_ticket();
  if (ticket == nullptr) return kNetSuccess;  // "busy"
  ticket->flushes = false;
  ticket->n = n;
  ticket->first = first;
  in_place_->next = {0, static_cast<uint32_t>(n), first};
  for (int i = 0; i < n;) {
    in_place_->next.tag = places[i].tag;
    void* posted = nullptr;
    const int code = post(places[i].data, places[i].bytes, places[i].region, &posted);
    if (code != kNetSuccess || (posted == nullptr && i == 0)) {
      if (i > 0) fail(code, "one of several receives was refused", 0);
      ticket->taken = false;
      return code;
    }
    i += posted != nullptr;
  }
  *request = static_cast<Object*>(ticket);
  return kNetSuccess;
}

int RecvComm::test_ticket(Ticket& ticket, int* done, int* sizes) {
  *done = 0;
  if (!ticket.taken) return kNetInternalError;
  if (ticket.flushes) {
    if (failed()) return failure();
    if (++ticket.tests <= device_.settings.flush_polls) return kNetSuccess;
  }
  for (; !ticket.flushes && ticket.done < ticket.n; ++ticket.done) {
    int one = 0;
    const Request& request = ring_.slot(ticket.first + ticket.done);
    const int code = test(request, &one, sizes != nullptr ? &sizes[ticket.done] : nullptr);
    if (code != kNetSuccess || one == 0) return code;
  }
  for (int i = 0; i < ticket.n; ++i) {
    if (ticket.flushes) {
      if (!in_place_->show(ticket.flushed[i])) return kNetUnhandledCudaError;
      continue;
    }
    const Request& request = ring_.slot(ticket.first + i);
    // A caller that asks again is told again.
    if (sizes != nullptr) tell_size(request, &sizes[i]);
    in_place_->done(request);
    consumed(request);
  }
  ticket.taken = false;
  *done = 1;
  return kNetSuccess;
}

int RecvComm::flush(int n, void** data, const int* sizes, void** request) {
  Ticket* const ticket = in_place_->take_ticket();
  if (ticket == nullptr) return kNetInternalError;
  ticket->flushes = true;
  ticket->n = 0;
  for (int i = 0; i < n; ++i) {
    if (sizes[i] > 0) ticket->flushed[ticket->n++] = static_cast<uint8_t*>(data[i]);
  }
  *request = static_cast<Object*>(ticket);
  if (device_.settings.flush_polls > 0) return kNetSuccess;
  int done = 0;
  const int code = test_ticket(*ticket, &done, nullptr);
  ticket->taken = false;
  *request = nullptr;
  return code;
}

}  // namespace softtcpx
