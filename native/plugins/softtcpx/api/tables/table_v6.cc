// The table of version 6: host memory alone, as its connections have no device side.
#include "net/abi_v6.h"
#include "plugins/softtcpx/api/calls.h"
#include "plugins/softtcpx/api/tables/properties.h"

namespace softtcpx {
namespace v6 {
namespace {

int get_properties(int index, NetPropertiesV6* properties) {
  return describe(index, properties, kNetPtrHost);
}

// Whoever cannot unpack has no receives into GPU memory, and no sends out of it.
int accept(void* listen_comm, void** recv_comm) {
  return softtcpx::accept(listen_comm, recv_comm, nullptr);
}

int reg_mr(void* comm, void* data, int size, int type, void** mhandle) {
  if (type != kNetPtrHost) return kNetInvalidArgument;
  return softtcpx::reg_mr(comm, data, size, type, mhandle);
}

int isend(void* comm, void* data, int size, int, void* mhandle, void** request) {
  return softtcpx::isend(comm, data, size, mhandle, request);
}

int irecv(void* comm, int n, void** data, int* sizes, int*, void** mhandles, void** request) {
  return softtcpx::irecv(comm, n, data, sizes, mhandles, request);
}

// There is no call by which a receive is consumed: it is when its caller knows that it is done.
int test(void* request_pointer, int* done, int* sizes) {
  const int code = softtcpx::test(request_pointer, done, sizes);
  if (code != kNetSuccess || *done == 0) return code;
  const auto* request = static_cast<const Request*>(request_pointer);
  auto* comm = as<RecvComm>(static_cast<Object*>(request->comm), ObjectKind::kRecvComm);
  return comm != nullptr ? comm->consumed(*request) : code;
}

}  // namespace
}  // namespace v6
}  // namespace softtcpx

extern "C" {
__attribute__((visibility("default"))) extern const NetTableV6 ncclNetPlugin_v6;
const NetTableV6 ncclNetPlugin_v6 = {
    "softtcpx_v6",
    softtcpx::answer<softtcpx::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::v6::get_properties>,
    softtcpx::answer<softtcpx::listen>,
    softtcpx::answer<softtcpx::connect>,
    softtcpx::answer<softtcpx::v6::accept>,
    softtcpx::answer<softtcpx::v6::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::v6::isend>,
    softtcpx::answer<softtcpx::v6::irecv>,
    softtcpx::answer<softtcpx::iflush>,
    softtcpx::answer<softtcpx::v6::test>,
    softtcpx::answer<softtcpx::close_send>,
    softtcpx::answer<softtcpx::close_recv>,
    softtcpx::answer<softtcpx::close_listen>,
};
}
