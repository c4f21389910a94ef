// The table of version 10: a traffic class and handles of a profiler, none of which TCP has any use
// for.
#include "net/abi_v10.h"
#include "plugins/softtcpx/api/calls.h"
#include "plugins/softtcpx/api/tables/properties.h"

namespace softtcpx {
namespace v10 {
namespace {

int init(NetLogger logger, NetProfiler) { return softtcpx::init(logger); }

int get_properties(int index, NetPropertiesV9* properties) {
  return describe_virtual(index, properties);
}

int connect(int index, NetCommConfig*, void* handle, void** send_comm, NetDeviceHandle**) {
  return softtcpx::connect(index, handle, send_comm);
}

int reg_mr(void* comm, void* data, size_t size, int type, void** mhandle) {
  return softtcpx::reg_mr(comm, data, static_cast<int64_t>(size), type, mhandle);
}

int isend(void* comm, void* data, size_t size, int, void* mhandle, void*, void** request) {
  return softtcpx::isend(comm, data, static_cast<int64_t>(size), mhandle, request);
}

int irecv(void* comm, int n, void** data, size_t* sizes, int*, void** mhandles, void**,
          void** request) {
  return softtcpx::irecv(comm, n, data, sizes, mhandles, request);
}

}  // namespace
}  // namespace v10
}  // namespace softtcpx

extern "C" {
__attribute__((visibility("default"))) extern const NetTableV10 ncclNetPlugin_v10;
const NetTableV10 ncclNetPlugin_v10 = {
    "softtcpx_v10",
    softtcpx::answer<softtcpx::v10::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::v10::get_properties>,
    softtcpx::answer<softtcpx::listen>,
    softtcpx::answer<softtcpx::v10::connect>,
    softtcpx::answer<softtcpx::accept>,
    softtcpx::answer<softtcpx::v10::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::v10::isend>,
    softtcpx::answer<softtcpx::v10::irecv>,
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
