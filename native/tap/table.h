// The table of any version, each entry passed on to that of the plugin below with the arguments as
// they came. What an entry notes beside is found by their types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "net/abi_v11.h"
#include "tap/core.h"
#include "tap/ticks.h"

namespace tap {

// Of the plugin; looked at in each call, since init may fill it.
template <class Table>
const Table* g_inner = nullptr;

template <size_t from_end, class... Arguments>
auto last(Arguments... arguments) {
  return std::get<sizeof...(Arguments) - 1 - from_end>(std::make_tuple(arguments...));
}

template <Call call>
struct Plain {
  template <class Function, class... Arguments>
  int operator()(Function inner, Arguments... arguments) const {
    if (Faults* put_in = faults()) {
      const int code = put_in->of_call(call);
      if (code >= 0) return code;
    }
    return inner(arguments...);
  }
};

struct GetProperties {
  template <class Function, class Properties>
  int operator()(Function inner, int device, Properties* properties) const {
    const int code = Plain<Call::kGetProperties>{}(inner, device, properties);
    if (code == kNetSuccess && properties != nullptr && recorder() != nullptr)
      recorder()->device(device, properties->name, properties->pci_path, properties->speed_mbps);
    return code;
  }
};

struct Listen {
  template <class Function, class... Arguments>
  int operator()(Function inner, Arguments... arguments) const {
    const int code = Plain<Call::kListen>{}(inner, arguments...);
    void** comm = last<0>(arguments...);
    void* handle = last<1>(arguments...);
    if (code == kNetSuccess && recorder() != nullptr && handle != nullptr && comm != nullptr)
      listens(handle, last<2>(arguments...), *comm);
    return code;
  }
};

struct Connect {
  template <class Function>
  int operator()(Function inner, int device, void* handle, void** comm) const {
    return note(device, handle, comm, inner, device, handle, comm);
  }
  template <class Function>
  int operator()(Function inner, int device, void* handle, void** comm,
                 NetDeviceHandle** send_device) const {
    return note(device, handle, comm, inner, device, handle, comm, send_device);
  }
  template <class Function>
  int operator()(Function inner, int device, NetCommConfig* config, void* handle, void** comm,
                 NetDeviceHandle** send_device) const {
    return note(device, handle, comm, inner, device, config, handle, comm, send_device);
  }
  template <class Function>
  int operator()(Function inner, void* context, int device, void* handle, void** comm,
                 NetDeviceHandle** send_device) const {
    return note(device, handle, comm, inner, context, device, handle, comm, send_device);
  }

 private:
  template <class Function, class... Arguments>
  static int note(int device, void* handle, void** comm, Function inner, Arguments... arguments) {
    const Plain<Call::kConnect> pass;
    if (recorder() == nullptr || handle == nullptr || comm == nullptr)
      return pass(inner, arguments...);
    const HandleHash hash = connects(handle);
    const int code = pass(inner, arguments...);
    connected(handle, hash, device, code, *comm);
    return code;
  }
};

struct Accept {
  template <class Function, class... Arguments>
  int operator()(Function inner, void* listen_comm, void** comm, Arguments... arguments) const {
    const int code = Plain<Call::kAccept>{}(inner, listen_comm, comm, arguments...);
    if (code == kNetSuccess && recorder() != nullptr && comm != nullptr && *comm != nullptr)
      accepted(listen_comm, *comm);
    return code;
  }
};

struct RegMr {
  template <class Function, class Size, class... Arguments>
  int operator()(Function inner, void* comm, void* data, Size size, int type,
                 Arguments... arguments) const {
    const int code = Plain<Call::kRegMr>{}(inner, comm, data, size, type, arguments...);
    void** mhandle = last<0>(arguments...);
    if (code == kNetSuccess && faults() != nullptr && mhandle != nullptr)
      faults()->registered(*mhandle, type);
    return code;
  }
};

// isend: one part, of arguments; irecv: of arrays of them. The request is the last in both.
template <Kind kind, Call call, class Function, class... Arguments>
int post(Function inner, void* pointer, int parts, uint64_t bytes, int tag, void* data,
         void* mhandle, Arguments... arguments) {
  Recorder* const notes = recorder();
  Comm* const comm = notes != nullptr ? notes->comm_of(pointer) : nullptr;
  if (comm == nullptr) return inner(arguments...);
  Faults* const put_in = faults();
  if (__builtin_expect(put_in != nullptr && kind != kFlush, false)) {
    const int code = put_in->of_post(call, *comm);
    if (code >= 0) {
      notes->refused(*comm, code, ticks(), ticks());
      return code;
    }
  }
  void** const request = last<0>(arguments...);
  const uint64_t before = ticks();
  const int code = inner(arguments...);
  const uint64_t after = ticks();
  if (code != kNetSuccess) {
    notes->refused(*comm, code, before, after);
  } else if (request != nullptr && *request != nullptr) {
    notes->posted(*comm, *request, bytes, before, after, kind, tag, parts);
    if (__builtin_expect(put_in != nullptr && kind != kFlush, false))
      put_in->posted(call, *comm, *request, data, bytes, mhandle);
  }
  return code;
}

struct Isend {
  template <class Function, class Size, class... Rest>
  int operator()(Function inner, void* comm, void* data, Size size, int tag, void* mhandle,
                 Rest... rest) const {
    return post<kSend, Call::kIsend>(inner, comm, 1, static_cast<uint64_t>(size), tag, data,
                                     mhandle, comm, data, size, tag, mhandle, rest...);
  }
};

struct Irecv {
  template <class Function, class Size, class... Rest>
  int operator()(Function inner, void* comm, int n, void** data, Size* sizes, int* tags,
                 void** mhandles, Rest... rest) const {
    const bool plain =
        n == 1 && data != nullptr && sizes != nullptr && tags != nullptr && mhandles != nullptr;
    if (__builtin_expect(!plain, false))
      return together(inner, comm, n, data, sizes, tags, mhandles, rest...);
    return post<kReceive, Call::kIrecv>(inner, comm, 1, static_cast<uint64_t>(sizes[0]), tags[0],
                                        data[0], mhandles[0], comm, n, data, sizes, tags, mhandles,
                                        rest...);
  }

 private:
  // Several at once: the arrays are the plugin's during the call, so what is in them is kept.
  template <class Function, class Size, class... Rest>
  static int together(Function inner, void* comm, int n, void** data, Size* sizes, int* tags,
                      void** mhandles, Rest... rest) {
    constexpr int kMost = 8;
    Recorder* const notes = recorder();
    Comm* const known = notes != nullptr ? notes->comm_of(comm) : nullptr;
    void** const request = last<0>(rest...);
    if (known == nullptr || n < 1 || n > kMost || data == nullptr || sizes == nullptr ||
        tags == nullptr || mhandles == nullptr || request == nullptr)
      return inner(comm, n, data, sizes, tags, mhandles, rest...);
    uint64_t bytes[kMost], total = 0;
    int tag[kMost];
    for (int i = 0; i < n; ++i) {
      bytes[i] = static_cast<uint64_t>(sizes[i]);
      tag[i] = tags[i];
      total += bytes[i];
    }
    const uint64_t at = ticks();
    const uint32_t number = known->posted;
    const int code =
        post<kReceive, Call::kIrecv>(inner, comm, n, total, tag[0], data[0], mhandles[0], comm, n,
                                     data, sizes, tags, mhandles, rest...);
    for (int i = 0; i < n && known->posted != number; ++i)
      notes->part(*known, number, i, n, bytes[i], tag[i], at);
    return code;
  }
};

struct Iflush {
  template <class Function>
  int operator()(Function inner, void* comm, int n, void** data, int* sizes, void** mhandles,
                 void** request) const {
    if (faults() != nullptr) {
      const int code = faults()->of_call(Call::kIflush);
      if (code >= 0) return code;
    }
    uint64_t bytes = 0;
    for (int i = 0; sizes != nullptr && i < n; ++i) bytes += static_cast<uint64_t>(sizes[i]);
    return post<kFlush, Call::kIflush>(inner, comm, 1, bytes, 0, nullptr, nullptr, comm, n, data,
                                       sizes, mhandles, request);
  }
};

struct Test {
  template <class Function>
  int operator()(Function inner, void* pointer, int* done, int* sizes) const {
    Recorder* const notes = recorder();
    Request* const request = notes != nullptr ? notes->request_of(pointer) : nullptr;
    if (request == nullptr || done == nullptr) return inner(pointer, done, sizes);
    Faults* const put_in = faults();
    if (__builtin_expect(put_in != nullptr, false)) *done = 0;
    const Poll poll(*request);
    int code = put_in == nullptr ? -1 : put_in->of_test(*request, pointer);
    if (__builtin_expect(code < 0, true)) {
      code = inner(pointer, done, sizes);
      if (__builtin_expect(put_in != nullptr, false) && code == kNetSuccess && *done != 0)
        put_in->done(pointer, done, sizes);
    }
    notes->tested(*request, poll, code, code == kNetSuccess && *done != 0, sizes);
    return code;
  }
};

// Before the plugin closes it: then another comm may have its pointer.
template <Call call>
struct Close {
  template <class Function>
  int operator()(Function inner, void* comm) const {
    if (recorder() != nullptr && comm != nullptr) {
      if (call == Call::kCloseListen)
        listens_no_more(comm);
      else
        recorder()->closing(comm);
    }
    return Plain<call>{}(inner, comm);
  }
};

struct Finalize {
  template <class Function>
  int operator()(Function inner, void* context) const {
    const int code = Plain<Call::kFinalize>{}(inner, context);
    if (code == kNetSuccess) after_finalize();
    return code;
  }
};

template <auto member, class Note>
struct Entry;
template <class Table, class... Arguments, int (*Table::*member)(Arguments...), class Note>
struct Entry<member, Note> {
  static int call(Arguments... arguments) { return Note{}(g_inner<Table>->*member, arguments...); }
  // As it is there below: an entry that the plugin leaves out is not offered here either.
  static void mirror(Table& own) {
    own.*member = g_inner<Table>->*member != nullptr ? call : nullptr;
  }
};

template <class Table, int abi>
void mirror(Table& own);

template <class Table, int abi, Table* own>
struct Init {
  template <class Function, class... Arguments>
  int operator()(Function inner, Arguments... arguments) const {
    NetLogger logger = logger_of(arguments...);
    if (const int code = before_init(logger)) return code;
    const int code = inner(arguments...);
    mirror<Table, abi>(*own);
    if (code == kNetSuccess) after_init(logger, abi, own->name);
    return code;
  }
  static NetLogger logger_of(NetLogger logger) { return logger; }
  static NetLogger logger_of(NetLogger logger, NetProfiler) { return logger; }
  static NetLogger logger_of(void**, uint64_t, NetCommConfig*, NetLogger logger, NetProfiler) {
    return logger;
  }
};

template <class Table, int abi>
void mirror(Table& own) {
  own.name = g_inner<Table>->name;
  Entry<&Table::devices, Plain<Call::kDevices>>::mirror(own);
  Entry<&Table::get_properties, GetProperties>::mirror(own);
  Entry<&Table::listen, Listen>::mirror(own);
  Entry<&Table::connect, Connect>::mirror(own);
  Entry<&Table::accept, Accept>::mirror(own);
  Entry<&Table::reg_mr, RegMr>::mirror(own);
  Entry<&Table::reg_mr_dma_buf, Plain<Call::kRegMrDmaBuf>>::mirror(own);
  Entry<&Table::dereg_mr, Plain<Call::kDeregMr>>::mirror(own);
  Entry<&Table::isend, Isend>::mirror(own);
  Entry<&Table::irecv, Irecv>::mirror(own);
  Entry<&Table::iflush, Iflush>::mirror(own);
  Entry<&Table::test, Test>::mirror(own);
  Entry<&Table::close_send, Close<Call::kCloseSend>>::mirror(own);
  Entry<&Table::close_recv, Close<Call::kCloseRecv>>::mirror(own);
  Entry<&Table::close_listen, Close<Call::kCloseListen>>::mirror(own);
  if constexpr (abi >= 7) {
    Entry<&Table::get_device_mr, Plain<Call::kGetDeviceMr>>::mirror(own);
    Entry<&Table::irecv_consumed, Plain<Call::kIrecvConsumed>>::mirror(own);
  }
  if constexpr (abi >= 9) Entry<&Table::make_v_device, Plain<Call::kMakeVDevice>>::mirror(own);
  if constexpr (abi >= 11) {
    Entry<&Table::finalize, Finalize>::mirror(own);
    Entry<&Table::set_net_attr, Plain<Call::kSetNetAttr>>::mirror(own);
  }
}

// The table as it is before init: that of the plugin, or, where there is none to use, a name and
// the init that says so.
template <class Table, int abi, Table* own>
void load() {
  g_inner<Table> = static_cast<const Table*>(load_inner(abi, own));
  if (g_inner<Table> != nullptr) {
    mirror<Table, abi>(*own);
    Entry<&Table::init, Init<Table, abi, own>>::mirror(*own);
    return;
  }
  static Table none{};
  none.name = "tap";
  g_inner<Table> = &none;
  own->name = none.name;
  own->init = Entry<&Table::init, Init<Table, abi, own>>::call;
}

}  // namespace tap
