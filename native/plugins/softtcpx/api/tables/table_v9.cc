// The table of version 9: messages of any size.
#include "net/abi_v9.h"
#include "plugins/softtcpx/api/calls.h"
#include "plugins/softtcpx/api/tables/properties.h"

namespace softtcpx {
namespace v9 {
namespace {

int get_properties(int index, NetPropertiesV9* properties) {
  return describe_virtual(index, properties);
}

int connect(int index, void* handle, void** send_comm, NetDeviceHandle**) {
  return softtcpx::connect(index, handle, send_comm);
}

int reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) {
  return softtcpx::reg_mr(comm, data, static_cast<int64_t>(size), type, mhandle);
}

int isend(void* comm, void* data, size_t size, int, void* mhandle, void** request) {
  return softtcpx::isend(comm, data, static_cast<int64_t>(size), mhandle, request);
}

int irecv(void* comm, int n, void** data, size_t* sizes, int*, void** mhandles, void** request) {
  return softtcpx::irecv(comm, n, data, sizes, mhandles, request);
}

}  // namespace
}  // namespace v9
}  // namespace softtcpx

extern "C" {
__attribute__((visibility("default"))) extern const NetTableV9 ncclNetPlugin_v9;
const NetTableV9 ncclNetPlugin_v9 = {
    "softtcpx_v9",
    softtcpx::answer<softtcpx::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::v9::get_properties>,
    softtcpx::answer<softtcpx::listen>,
    softtcpx::answer<softtcpx::v9::connect>,
    softtcpx::answer<softtcpx::accept>,
    softtcpx::answer<softtcpx::v9::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::v9::isend>,
    softtcpx::answer<softtcpx::v9::irecv>,
    softtcpx::answer<softtcpx::iflush>,
    softtcpx::answer<softtcpx::test>,
    softtcpx::answer<softtcpx::close_send>,
    softtcpx::answer<softtcpx::close_recv>,
    softtcpx::answer<softtcpx::close_listen>,
    softtcpx::answer<softtcpx::get_device_mr>,
    softtcpx::answer<softtcpx::irecv_consumed>,
    nullptr,  // makeVDevice: each connection takes one interface
};
}
