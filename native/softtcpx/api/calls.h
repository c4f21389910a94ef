// The calls of the tables, alike for all versions: each checks its arguments, and goes on to the
// object that does the work. What a version makes of them is in table.h.
#pragma once

#include <cstdint>

#include "net/abi.h"
#include "softtcpx/environment/interfaces.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/transfer/recv_comm.h"
#include "softtcpx/transfer/send_comm.h"

namespace softtcpx {

// As unkind as TCPX, where traps say so.
const Traps& traps();

// Whether it is of the kind that puts data in place; after init.
bool is_direct();
int max_receives();
bool takes_dma_buf();

int init(int abi, NetLogger logger);  // once a process
// From v11 on any number of contexts share what the first of them found; the last one ends it.
int init_context(int abi, void** context, NetLogger logger, int traffic_class);
int finalize(void* context);
bool is_context(void* context);

int devices(int* count);
const Interface* interface_of(int index);  // none: there is no such device

int listen(int index, void* handle, void** listen_comm);
// What a context was made with; -1 for none.
int traffic_class_of(void* context);
int connect(int index, void* handle, void** send_comm, int traffic_class = -1);
int accept(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device);
int reg_mr(void* comm, void* data, int64_t size, int type, void** mhandle);
int reg_mr_dma_buf(void* comm, void* data, int64_t size, int type, uint64_t offset, int fd,
                   void** mhandle);
int dereg_mr(void* comm, void* mhandle);
int iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
int close_send(void* comm);
int close_recv(void* comm);
int close_listen(void* comm);
int get_device_mr(void* comm, void* mhandle, void** device_mhandle);

// --- What moves data, within the entry of each table: there is no call between ---

int serve_gpu_memory(SendComm& comm, const Gpu& gpu);
int serve_in_place(RecvComm& comm, const Region& region);

inline Comm* as_comm(void* pointer) {
  Comm* comm = as<SendComm>(pointer, ObjectKind::kSendComm);
  return comm != nullptr ? comm : as<RecvComm>(pointer, ObjectKind::kRecvComm);
}

inline int isend(void* send_comm, void* data, int64_t size, void* mhandle, void** request,
                 int tag = 0) {
  auto* comm = as<SendComm>(send_comm, ObjectKind::kSendComm);
  if (comm == nullptr && as_comm(send_comm) != nullptr && traps().takes_all != 0)
    return kNetSuccess;  // and no request comes of it
  if (comm == nullptr || request == nullptr) return kNetInvalidArgument;
  auto* region = as<Region>(mhandle, ObjectKind::kRegion);
  if (region != nullptr && region->memory == Memory::kGpu && !comm->copies_gpu_memory()) {
    // A registration is the NIC's: this one was made for another connection.
    const int code = serve_gpu_memory(*comm, region->gpu);
    if (code != kNetSuccess) return code;
  }
  return comm->send(data, size, region, request, tag);
}

// A caller that needs no completion may have one all the same: what is in `*request` is not read.
template <class Size>
int irecv(void* recv_comm, int n, void** data, const Size* sizes, void** mhandles, void** request) {
  auto* comm = as<RecvComm>(recv_comm, ObjectKind::kRecvComm);
  if (comm == nullptr || n != 1 || data == nullptr || sizes == nullptr || mhandles == nullptr ||
      request == nullptr)
    return kNetInvalidArgument;
  return comm->receive(data[0], static_cast<int64_t>(sizes[0]),
                       as<Region>(mhandles[0], ObjectKind::kRegion), request);
}

// The same calls of the kind that puts data in place.
template <class Size>
int irecv_in_place(void* recv_comm, int n, void** data, const Size* sizes, const int* tags,
                   void** mhandles, void** request) {
  auto* comm = as<RecvComm>(recv_comm, ObjectKind::kRecvComm);
  if (comm == nullptr || n < 1 || n > max_receives() || data == nullptr || sizes == nullptr ||
      tags == nullptr || mhandles == nullptr || request == nullptr)
    return kNetInvalidArgument;
  RecvComm::Place places[kMostReceives];
  for (int i = 0; i < n; ++i) {
    const auto* region = as<Region>(mhandles[i], ObjectKind::kRegion);
    if (region != nullptr && !comm->in_place()->serves(region->memory, region->gpu)) {
      // A registration is the NIC's: this one was made for another connection.
      const int code = serve_in_place(*comm, *region);
      if (code != kNetSuccess) return code;
    }
    places[i] = {data[i], static_cast<int64_t>(sizes[i]), region, tags[i]};
  }
  return comm->receive_together(places, n, request);
}

inline int test_in_place(void* request_pointer, int* done, int* sizes) {
  if (request_pointer == nullptr || done == nullptr) return kNetInvalidArgument;
  auto* ticket = as<Ticket>(request_pointer, ObjectKind::kTicket);
  if (ticket != nullptr) return ticket->comm->test_ticket(*ticket, done, sizes);
  const auto* request = static_cast<const Request*>(request_pointer);
  return request->comm->test(*request, done, sizes);
}

int iflush_in_place(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                    void** request);

inline int test(void* request_pointer, int* done, int* sizes) {
  const auto* request = static_cast<const Request*>(request_pointer);
  if (request == nullptr || done == nullptr) return kNetInvalidArgument;
  return request->comm->test(*request, done, sizes);
}

inline int irecv_consumed(void* recv_comm, int n, void* request) {
  auto* comm = as<RecvComm>(recv_comm, ObjectKind::kRecvComm);
  if (comm == nullptr && as_comm(recv_comm) != nullptr && traps().takes_all != 0)
    return kNetSuccess;
  if (comm == nullptr || n != 1 || request == nullptr) return kNetInvalidArgument;
  return comm->consumed(*static_cast<const Request*>(request));
}

// What traps make of the error of a call.
int with_traps(int code);

}  // namespace softtcpx
