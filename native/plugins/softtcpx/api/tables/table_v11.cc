// The table of version 11: a context for each communicator.
#include "net/abi_v11.h"
#include "plugins/softtcpx/api/calls.h"
#include "plugins/softtcpx/api/tables/properties.h"

namespace softtcpx {
namespace v11 {
namespace {

int init(void** context, uint64_t, NetCommConfig*, NetLogger logger, NetProfiler) {
  return init_context(context, logger);
}

int get_properties(int index, NetPropertiesV11* properties) {
  const int code = describe_virtual(index, properties);
  if (code != kNetSuccess) return code;
  properties->max_multi_request = 1;
  return kNetSuccess;
}

int listen(void* context, int index, void* handle, void** listen_comm) {
  if (!is_context(context)) return kNetInvalidArgument;
  return softtcpx::listen(index, handle, listen_comm);
}

int connect(void* context, int index, void* handle, void** send_comm, NetDeviceHandle**) {
  if (!is_context(context)) return kNetInvalidArgument;
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

// TCP is the same whatever a communicator is about to do.
int set_net_attr(void* context, NetAttributes* attributes) {
  return is_context(context) && attributes != nullptr ? kNetSuccess : kNetInvalidArgument;
}

}  // namespace
}  // namespace v11
}  // namespace softtcpx

extern "C" {
__attribute__((visibility("default"))) extern const NetTableV11 ncclNetPlugin_v11;
const NetTableV11 ncclNetPlugin_v11 = {
    "softtcpx_v11",
    softtcpx::answer<softtcpx::v11::init>,
    softtcpx::answer<softtcpx::devices>,
    softtcpx::answer<softtcpx::v11::get_properties>,
    softtcpx::answer<softtcpx::v11::listen>,
    softtcpx::answer<softtcpx::v11::connect>,
    softtcpx::answer<softtcpx::accept>,
    softtcpx::answer<softtcpx::v11::reg_mr>,
    nullptr,  // regMrDmaBuf: not offered, as TCPX
    softtcpx::answer<softtcpx::dereg_mr>,
    softtcpx::answer<softtcpx::v11::isend>,
    softtcpx::answer<softtcpx::v11::irecv>,
    softtcpx::answer<softtcpx::iflush>,
    softtcpx::answer<softtcpx::test>,
    softtcpx::answer<softtcpx::close_send>,
    softtcpx::answer<softtcpx::close_recv>,
    softtcpx::answer<softtcpx::close_listen>,
    softtcpx::answer<softtcpx::get_device_mr>,
    softtcpx::answer<softtcpx::irecv_consumed>,
    nullptr,  // makeVDevice: each connection takes one interface
    softtcpx::answer<softtcpx::finalize>,
    softtcpx::answer<softtcpx::v11::set_net_attr>,
};
}
