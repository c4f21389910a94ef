// The table of version 7: the one of TCPX.
#include "net/abi_v7.h"
#include "plugins/softtcpx/api/calls.h"
#include "plugins/softtcpx/api/tables/properties.h"

namespace softtcpx {
namespace v7 {
namespace {

int get_properties(int index, NetPropertiesV7* properties) {
  return describe_device(index, properties);
}

int connect(int index, void* handle, void** send_comm, NetDeviceHandle**) {
  return softtcpx::connect(index, handle, send_comm);
}

int reg_mr(void* comm, void* data, int size, int type, void** mhandle) {
  return softtcpx::reg_mr(comm, data, size, type, mhandle);
}

int isend(void* comm, void* data, int size, int, void* mhandle, void** request) {
  return softtcpx::isend(comm, data, size, mhandle, request);
}

int irecv(void* comm, int n, void** data, int* sizes, int*, void** mhandles, void** request) {
  return softtcpx::irecv(comm, n, data, sizes, mhandles, request);
}

}  // namespace
}  // namespace v7
}  // namespace softtcpx

extern "C" {
__attribute__((visibility("default"))) extern const NetTableV7 ncclNetPlugin_v7;
const NetTableV7 ncclNetPlugin_v7 = {
    "softtcpx_v7",
    softtcpx::answer<softtcpx::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::v7::get_properties>,
    softtcpx::answer<softtcpx::listen>,
    softtcpx::answer<softtcpx::v7::connect>,
    softtcpx::answer<softtcpx::accept>,
    softtcpx::answer<softtcpx::v7::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::v7::isend>,
    softtcpx::answer<softtcpx::v7::irecv>,
    softtcpx::answer<softtcpx::iflush>,
    softtcpx::answer<softtcpx::test>,
    softtcpx::answer<softtcpx::close_send>,
    softtcpx::answer<softtcpx::close_recv>,
    softtcpx::answer<softtcpx::close_listen>,
    softtcpx::answer<softtcpx::get_device_mr>,
    softtcpx::answer<softtcpx::irecv_consumed>,
};
}
