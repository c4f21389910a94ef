// The table of any version, around the same calls. An entry has the arguments that the version's
// declaration gives it; what a call here makes of them is found by their types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "net/abi_v11.h"
#include "softtcpx/api/calls.h"

namespace softtcpx {

// Virtual devices of the properties are not made: each connection takes one interface. Each byte is
// written: NCCL hands over what was on its stack.
template <int abi>
struct GetProperties {
  template <class Properties>
  int operator()(int index, Properties* properties) const {
    const Interface* nic = interface_of(index);
    if (nic == nullptr || properties == nullptr) return kNetInvalidArgument;
    *properties = Properties{};
    properties->name = nic->name.c_str();
    properties->pci_path = nic->pci_path.empty() ? nullptr : nic->pci_path.c_str();
    properties->guid = static_cast<uint64_t>(index);
    properties->ptr_support = kNetPtrHost;
    properties->speed_mbps = nic->speed_mbps;
    properties->max_comms = 65536;
    properties->max_recvs = 1;
    if (is_direct()) {
      properties->ptr_support |= kNetPtrCuda | (takes_dma_buf() ? kNetPtrDmaBuf : 0);
      properties->max_recvs = max_receives();
      if constexpr (abi >= 8) properties->reg_is_global = 1;
      if constexpr (abi >= 9) properties->force_flush = traps().hidden > 0;
    } else if constexpr (abi >= 7) {
      properties->ptr_support |= kNetPtrCuda;
      properties->net_device_type = kNetDeviceUnpack;
      properties->net_device_version = kNetUnpackVersion;
    }
    if constexpr (abi >= 9) {
      properties->v_device.ndevs = 1;
      properties->v_device.devs[0] = index;
      // A message may be as long as NCCL's own limit.
      properties->max_p2p_bytes = properties->max_coll_bytes = size_t{1} << 40;
    }
    if constexpr (abi >= 11) properties->max_multi_request = 1;
    if constexpr (abi >= 12) properties->rail_id = properties->plane_id = -1;  // not known
    return kNetSuccess;
  }
};

// The first one turns the table into that of the kind that was asked for.
template <int abi, auto* self>
struct Init {
  int operator()(NetLogger logger) const { return turned(init(abi, logger)); }
  int operator()(NetLogger logger, NetProfiler) const { return turned(init(abi, logger)); }
  int operator()(void** context, uint64_t, NetCommConfig* config, NetLogger logger,
                 NetProfiler) const {
    return turned(
        init_context(abi, context, logger, config != nullptr ? config->traffic_class : -1));
  }

 private:
  static int turned(int code);
};

struct Listen {
  int operator()(int index, void* handle, void** listen_comm) const {
    return listen(index, handle, listen_comm);
  }
  int operator()(void* context, int index, void* handle, void** listen_comm) const {
    return is_context(context) ? listen(index, handle, listen_comm) : kNetInvalidArgument;
  }
};

// Nothing is offered to the sending side. A traffic class is that of IP.
struct Connect {
  int operator()(int index, void* handle, void** send_comm) const {
    return connect(index, handle, send_comm);
  }
  int operator()(int index, void* handle, void** send_comm, NetDeviceHandle**) const {
    return connect(index, handle, send_comm);
  }
  int operator()(int index, NetCommConfig* config, void* handle, void** send_comm,
                 NetDeviceHandle**) const {
    return connect(index, handle, send_comm, config != nullptr ? config->traffic_class : -1);
  }
  int operator()(void* context, int index, void* handle, void** send_comm,
                 NetDeviceHandle**) const {
    return is_context(context) ? connect(index, handle, send_comm, traffic_class_of(context))
                               : kNetInvalidArgument;
  }
};

struct Accept {
  int operator()(void* listen_comm, void** recv_comm, NetDeviceHandle** recv_device) const {
    return accept(listen_comm, recv_comm, recv_device);
  }
  int operator()(void* listen_comm, void** recv_comm) const {
    return accept(listen_comm, recv_comm, nullptr);
  }
};

// Whoever cannot unpack has no receives into GPU memory, and no sends out of it.
template <int abi>
struct RegMr {
  template <class Size>
  int operator()(void* comm, void* data, Size size, int type, void** mhandle) const {
    if (abi < 7 && type != kNetPtrHost && !is_direct()) return kNetInvalidArgument;
    return reg_mr(comm, data, static_cast<int64_t>(size), type, mhandle);
  }
};

// Nor has it any use for tags and for a profiler's handles.
struct Isend {
  template <class Size>
  int operator()(void* comm, void* data, Size size, int, void* mhandle, void** request) const {
    return isend(comm, data, static_cast<int64_t>(size), mhandle, request);
  }
  template <class Size>
  int operator()(void* comm, void* data, Size size, int, void* mhandle, void*,
                 void** request) const {
    return isend(comm, data, static_cast<int64_t>(size), mhandle, request);
  }
};

struct Irecv {
  template <class Size>
  int operator()(void* comm, int n, void** data, Size* sizes, int*, void** mhandles,
                 void** request) const {
    return irecv(comm, n, data, sizes, mhandles, request);
  }
  template <class Size>
  int operator()(void* comm, int n, void** data, Size* sizes, int*, void** mhandles, void**,
                 void** request) const {
    return irecv(comm, n, data, sizes, mhandles, request);
  }
};

// Of the kind that puts data in place, which matches by tags.
struct IsendInPlace {
  template <class Size>
  int operator()(void* comm, void* data, Size size, int tag, void* mhandle, void** request) const {
    return isend(comm, data, static_cast<int64_t>(size), mhandle, request, tag);
  }
  template <class Size>
  int operator()(void* comm, void* data, Size size, int tag, void* mhandle, void*,
                 void** request) const {
    return isend(comm, data, static_cast<int64_t>(size), mhandle, request, tag);
  }
};

struct IrecvInPlace {
  template <class Size>
  int operator()(void* comm, int n, void** data, Size* sizes, int* tags, void** mhandles,
                 void** request) const {
    return irecv_in_place(comm, n, data, sizes, tags, mhandles, request);
  }
  template <class Size>
  int operator()(void* comm, int n, void** data, Size* sizes, int* tags, void** mhandles, void**,
                 void** request) const {
    return irecv_in_place(comm, n, data, sizes, tags, mhandles, request);
  }
};

struct RegMrDmaBuf {
  int operator()(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                 void** mhandle) const {
    return reg_mr_dma_buf(comm, data, static_cast<int64_t>(size), type, offset, fd, mhandle);
  }
};

// Where no call consumes a receive, it is consumed when its caller knows that it is done.
template <int abi>
struct Test {
  int operator()(void* request_pointer, int* done, int* sizes) const {
    const int code = test(request_pointer, done, sizes);
    if (abi >= 7 || code != kNetSuccess || *done == 0) return code;
    const auto* request = static_cast<const Request*>(request_pointer);
    auto* comm = as<RecvComm>(static_cast<Object*>(request->comm), ObjectKind::kRecvComm);
    return comm != nullptr ? comm->consumed(*request) : code;
  }
};

// TCP is the same whatever a communicator is about to do.
struct SetNetAttr {
  int operator()(void* context, NetAttributes* attributes) const {
    return is_context(context) && attributes != nullptr ? kNetSuccess : kNetInvalidArgument;
  }
};

// Of calls that have the same arguments in each version.
template <auto call>
struct Alike {
  template <class... Arguments>
  int operator()(Arguments... arguments) const {
    return call(arguments...);
  }
};

// An entry, and what traps make of its errors.
template <class Call, class... Arguments>
constexpr void fill(int (*&entry)(Arguments...)) {
  entry = [](Arguments... arguments) {
    const int code = Call{}(arguments...);
    return __builtin_expect(code == kNetSuccess, true) ? code : with_traps(code);
  };
}

// Not offered, as by TCPX: regMrDmaBuf; and makeVDevice.
template <class Table, int abi, Table* self>
constexpr Table table(const char* name) {
  Table made{};
  made.name = name;
  fill<Init<abi, self>>(made.init);
  fill<Alike<devices>>(made.devices);
  fill<GetProperties<abi>>(made.get_properties);
  fill<Listen>(made.listen);
  fill<Connect>(made.connect);
  fill<Accept>(made.accept);
  fill<RegMr<abi>>(made.reg_mr);
  fill<Alike<dereg_mr>>(made.dereg_mr);
  fill<Isend>(made.isend);
  fill<Irecv>(made.irecv);
  fill<Alike<iflush>>(made.iflush);
  fill<Test<abi>>(made.test);
  fill<Alike<close_send>>(made.close_send);
  fill<Alike<close_recv>>(made.close_recv);
  fill<Alike<close_listen>>(made.close_listen);
  if constexpr (abi >= 7) {
    fill<Alike<get_device_mr>>(made.get_device_mr);
    fill<Alike<irecv_consumed>>(made.irecv_consumed);
  }
  if constexpr (abi >= 11) {
    fill<Alike<finalize>>(made.finalize);
    fill<SetNetAttr>(made.set_net_attr);
  }
  return made;
}

// What differs of the kind that puts data in place.
template <class Table>
void put_in_place(Table& table) {
  fill<RegMrDmaBuf>(table.reg_mr_dma_buf);
  fill<IsendInPlace>(table.isend);
  fill<IrecvInPlace>(table.irecv);
  fill<Alike<iflush_in_place>>(table.iflush);
  fill<Alike<test_in_place>>(table.test);
}
template <class Table>
void unpack_nothing(Table& table) {
  table.get_device_mr = nullptr;
  table.irecv_consumed = nullptr;
}

template <int abi, auto* self>
int Init<abi, self>::turned(int code) {
  if (code != kNetSuccess || !is_direct() || self->reg_mr_dma_buf != nullptr) return code;
  put_in_place(*self);
  if constexpr (abi >= 7) unpack_nothing(*self);
  return code;
}

}  // namespace softtcpx
