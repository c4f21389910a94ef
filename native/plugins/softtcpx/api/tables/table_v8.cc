// The table of version 8: registrations of any size.
#include "net/abi_v8.h"
#include "plugins/softtcpx/api/calls.h"
#include "plugins/softtcpx/api/tables/properties.h"

namespace softtcpx {
namespace v8 {
namespace {

int get_properties(int index, NetPropertiesV8* properties) {
  return describe_device(index, properties);
}

int connect(int index, void* handle, void** send_comm, NetDeviceHandle**) {
  return softtcpx::connect(index, handle, send_comm);
}

int reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) {
  return softtcpx::reg_mr(comm, data, static_cast<int64_t>(size), type, mhandle);
}

int isend(void* comm, void* data, int size, int, void* mhandle, void** request) {
  return softtcpx::isend(comm, data, size, mhandle, request);
}

int irecv(void* comm, int n, void** data, int* sizes, int*, void** mhandles, void** request) {
  return softtcpx::irecv(comm, n, data, sizes, mhandles, request);
}

}  // namespace
}  // namespace v8
}  // namespace softtcpx

extern "C" {
__attribute__((visibility("default"))) extern const NetTableV8 ncclNetPlugin_v8;
const NetTableV8 ncclNetPlugin_v8 = {
    "softtcpx_v8",
    softtcpx::answer<softtcpx::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::v8::get_properties>,
    softtcpx::answer<softtcpx::listen>,
    softtcpx::answer<softtcpx::v8::connect>,
    softtcpx::answer<softtcpx::accept>,
    softtcpx::answer<softtcpx::v8::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::v8::isend>,
    softtcpx::answer<softtcpx::v8::irecv>,
    softtcpx::answer<softtcpx::iflush>,
    softtcpx::answer<softtcpx::test>,
    softtcpx::answer<softtcpx::close_send>,
    softtcpx::answer<softtcpx::close_recv>,
    softtcpx::answer<softtcpx::close_listen>,
    softtcpx::answer<softtcpx::get_device_mr>,
    softtcpx::answer<softtcpx::irecv_consumed>,
};
}
