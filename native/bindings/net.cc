// The calls of a plugin's table one by one, for whoever tests a plugin: each returns the plugin's
// own code first. Nothing is checked, repeated or put in order here; pointers are numbers. Calls of
// messages let other threads go on, which may drive other comms, and so does accept, which may
// wait.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "bindings/bind.h"
#include "net/layout.h"
#include "net/library.h"
#include "net/logger.h"
#include "net/profiler.h"

namespace tcpx {
namespace {

using Address = uintptr_t;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void* pointer(Address address) { return reinterpret_cast<void*>(address); }
Address number(const void* p) { return reinterpret_cast<Address>(p); }

std::vector<void*> pointers(const std::vector<Address>& addresses) {
  std::vector<void*> all;
  for (const Address address : addresses) all.push_back(pointer(address));
  return all;
}

// (code, result): a type of their own, so that the stub says what is in them.
template <typename Result>
using Answer = std::tuple<int, Result>;

uint8_t* handle_bytes(Bytes& handle) {
  if (handle.size() < kNetHandleBytes) throw nb::value_error("a handle has 128 bytes");
  return handle.data();
}

void require_sizes(const Net& net, const std::vector<size_t>& sizes) {
  for (const size_t size : sizes) {
    if (size > net.max_request_bytes()) throw nb::value_error("this ABI has int sizes");
  }
}

// A table and its library; a Plugin that anything may be done to, at any time.
class Table {
 public:
  Table(const std::string& path, int abi) : plugin_(path, abi) {}
  Net& net() { return plugin_.net(); }
  Plugin& plugin() { return plugin_; }

 private:
  Plugin plugin_;
};

std::tuple<int, nb::bytes, Address> listen(Table& t, int device) {
  uint8_t handle[kNetHandleBytes] = {};
  void* comm = nullptr;
  const int code = t.net().listen(device, handle, &comm);
  return {code, nb::bytes(reinterpret_cast<const char*>(handle), sizeof handle), number(comm)};
}

// A handle over bytes of one value, with as many behind it: what is written there is too much.
std::tuple<int, nb::bytes, Address> raw_listen(Table& t, int device, int fill) {
  uint8_t handle[2 * kNetHandleBytes];
  memset(handle, fill, sizeof handle);
  void* comm = nullptr;
  const int code = t.net().listen(device, handle, &comm);
  return {code, nb::bytes(reinterpret_cast<const char*>(handle), sizeof handle), number(comm)};
}

std::tuple<int, Address, Address> connect(Table& t, int device, Bytes handle) {
  void* comm = nullptr;
  NetDeviceHandle* device_handle = nullptr;
  const int code = t.net().connect(device, handle_bytes(handle), &comm, &device_handle);
  return {code, number(comm), number(device_handle)};
}

std::tuple<int, Address, Address> accept(Table& t, Address listen_comm, Address device_block) {
  void* comm = nullptr;
  auto* device_handle = static_cast<NetDeviceHandle*>(pointer(device_block));
  const int code = t.net().accept(pointer(listen_comm), &comm, &device_handle);
  return {code, number(comm), number(device_handle)};
}

Answer<Address> reg_mr(Table& t, Address comm, Address data, size_t bytes, int type) {
  if (bytes > t.net().max_region_bytes()) throw nb::value_error("this ABI has int sizes");
  void* mhandle = nullptr;
  const int code = t.net().reg_mr(pointer(comm), pointer(data), bytes, type, &mhandle);
  return Answer<Address>(code, number(mhandle));
}

Answer<Address> isend(Table& t, Address comm, Address data, size_t bytes, int tag,
                      Address mhandle) {
  require_sizes(t.net(), {bytes});
  void* request = nullptr;
  const int code =
      t.net().isend(pointer(comm), pointer(data), bytes, tag, pointer(mhandle), &request);
  return Answer<Address>(code, number(request));
}

Answer<Address> irecv(Table& t, Address comm, const std::vector<Address>& data,
                      std::vector<size_t> sizes, std::vector<int> tags,
                      const std::vector<Address>& mhandles, bool optional_completion) {
  if (sizes.size() != data.size() || tags.size() != data.size() || mhandles.size() != data.size()) {
    throw nb::value_error("each receive has an address, a size, a tag and a region");
  }
  require_sizes(t.net(), sizes);
  std::vector<void*> to = pointers(data), regions = pointers(mhandles);
  void* request = optional_completion ? kNetOptionalCompletion : nullptr;
  const int code = t.net().irecv(pointer(comm), static_cast<int>(to.size()), to.data(),
                                 sizes.data(), tags.data(), regions.data(), &request);
  return Answer<Address>(code, number(request));
}

Answer<Address> iflush(Table& t, Address comm, const std::vector<Address>& data,
                       std::vector<int> sizes, const std::vector<Address>& mhandles) {
  if (sizes.size() != data.size() || mhandles.size() != data.size()) {
    throw nb::value_error("each receive has an address, a size and a region");
  }
  std::vector<void*> to = pointers(data), regions = pointers(mhandles);
  void* request = nullptr;  // some leave it as it is: nothing to wait for
  const int code = t.net().iflush(pointer(comm), static_cast<int>(to.size()), to.data(),
                                  sizes.data(), regions.data(), &request);
  return Answer<Address>(code, number(request));
}

// Sizes begin as -1: what stays so was not written. Of 0 receives, as of a flush, there are none:
// the plugin has NULL in their place.
std::tuple<int, int, std::vector<int>> test(Table& t, Address request, int receives) {
  int done = 0;
  std::vector<int> sizes(static_cast<size_t>(std::max(receives, 0)), -1);
  const int code = t.net().test(pointer(request), &done, sizes.empty() ? nullptr : sizes.data());
  return {code, done, sizes};
}

// The properties as the plugin writes them over bytes of one value.
Answer<nb::bytes> raw_properties(Table& t, int device, int fill) {
  std::vector<uint8_t> raw(t.net().properties_bytes(), static_cast<uint8_t>(fill));
  const int code = t.net().raw_properties(device, raw.data());
  return {code, nb::bytes(reinterpret_cast<const char*>(raw.data()), raw.size())};
}

List<std::tuple<int, Address>> newest_events() {
  List<std::tuple<int, Address>> all;
  for (const ProfilerEvent& event : last_profiler_events()) {
    all.append(nb::make_tuple(event.type, number(event.phandle)));
  }
  return all;
}

List<std::tuple<std::string, size_t, size_t>> layout_of(int abi) {
  List<std::tuple<std::string, size_t, size_t>> fields;
  for (const Field& field : properties_layout(abi)) {
    fields.append(nb::make_tuple(field.name, field.offset, field.bytes));
  }
  return fields;
}

}  // namespace

void bind_net(nb::module_& m) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Table>(m, "Table", "A plugin's table, call by call; the first result is its code.")
      .def(nb::init<const std::string&, int>(), "path"_a, "abi"_a = 0)
      .def_prop_ro("abi", [](Table& t) { return t.net().abi(); })
      .def_prop_ro("abi_versions", [](Table& t) { return t.plugin().abi_versions(); })
      .def_prop_ro("path", [](Table& t) { return t.plugin().path(); })
      .def_prop_ro("name", [](Table& t) { return t.net().name(); })
      .def_prop_ro("has_contexts", [](Table& t) { return t.net().has_contexts(); })
      .def_prop_ro("max_region_bytes", [](Table& t) { return t.net().max_region_bytes(); })
      .def_prop_ro("max_request_bytes", [](Table& t) { return t.net().max_request_bytes(); })
      .def("missing", [](Table& t) { return t.net().missing(); })
      .def("extras", [](Table& t) { return t.net().extras(); })
      .def(
          "init",
          [](Table& t, int traffic_class) {
            t.net().set_traffic_class(traffic_class);
            return t.net().init(plugin_log::function());
          },
          "traffic_class"_a = -1, Unlocked())
      .def(
          "finalize", [](Table& t) { return t.net().finalize(); }, Unlocked())
      .def("devices",
           [](Table& t) {
             int count = -1;
             const int code = t.net().devices(&count);
             return Answer<int>(code, count);
           })
      .def("raw_properties", &raw_properties, "device"_a, "fill"_a)
      .def("listen", &listen, "device"_a)
      .def("raw_listen", &raw_listen, "device"_a, "fill"_a)
      .def("connect", &connect, "device"_a, "handle"_a)
      .def("accept", &accept, "listen_comm"_a, "device_block"_a = 0, Unlocked())
      .def("reg_mr", &reg_mr, "comm"_a, "data"_a, "bytes"_a, "type"_a)
      .def(
          "reg_mr_dma_buf",
          [](Table& t, Address comm, Address data, size_t bytes, int type, uint64_t offset,
             int fd) {
            void* mhandle = nullptr;
            const int code = t.net().reg_mr_dma_buf(pointer(comm), pointer(data), bytes, type,
                                                    offset, fd, &mhandle);
            return Answer<Address>(code, number(mhandle));
          },
          "comm"_a, "data"_a, "bytes"_a, "type"_a, "offset"_a, "fd"_a)
      .def(
          "dereg_mr",
          [](Table& t, Address comm, Address mhandle) {
            return t.net().dereg_mr(pointer(comm), pointer(mhandle));
          },
          "comm"_a, "mhandle"_a)
      .def(
          "get_device_mr",
          [](Table& t, Address comm, Address mhandle) {
            void* found = nullptr;
            const int code = t.net().get_device_mr(pointer(comm), pointer(mhandle), &found);
            return Answer<Address>(code, number(found));
          },
          "comm"_a, "mhandle"_a)
      .def("isend", &isend, "comm"_a, "data"_a, "bytes"_a, "tag"_a, "mhandle"_a, Unlocked())
      .def("irecv", &irecv, "comm"_a, "data"_a, "sizes"_a, "tags"_a, "mhandles"_a,
           "optional_completion"_a = false, Unlocked())
      .def("iflush", &iflush, "comm"_a, "data"_a, "sizes"_a, "mhandles"_a)
      .def("test", &test, "request"_a, "receives"_a = 1, Unlocked())
      .def(
          "irecv_consumed",
          [](Table& t, Address comm, int n, Address request) {
            return t.net().irecv_consumed(pointer(comm), n, pointer(request));
          },
          "comm"_a, "n"_a, "request"_a, Unlocked())
      .def(
          "set_phandle", [](Table& t, Address phandle) { t.net().set_phandle(pointer(phandle)); },
          "phandle"_a)
      .def(
          "make_v_device",
          [](Table& t, const std::vector<int>& parts) {
            int device = -1;
            const int code = t.net().make_v_device(parts, &device);
            return Answer<int>(code, device);
          },
          "parts"_a)
      .def(
          "set_net_attr",
          [](Table& t, int peers, int flows, uint32_t operation, uint32_t algorithm,
             uint32_t protocol) {
            const NetCommAttributes both{peers, peers, flows, flows};
            return t.net().set_net_attr({both, both, operation, algorithm, protocol});
          },
          "peers"_a = -1, "flows"_a = -1, "operation"_a = UINT32_MAX, "algorithm"_a = UINT32_MAX,
          "protocol"_a = UINT32_MAX)
      .def(
          "close_send", [](Table& t, Address comm) { return t.net().close_send(pointer(comm)); },
          "comm"_a)
      .def(
          "close_recv", [](Table& t, Address comm) { return t.net().close_recv(pointer(comm)); },
          "comm"_a)
      .def(
          "close_listen",
          [](Table& t, Address comm) { return t.net().close_listen(pointer(comm)); }, "comm"_a);

  m.def("properties_layout", &layout_of, "abi"_a,
        "(field, offset, bytes) of every field of the properties of a version.");
  m.def("profiler_events", &profiler_events,
        "How many events plugins have told the profiler's function that init hands them.");
  m.def("last_profiler_events", &newest_events,
        "(type, phandle) of the newest of them, at most 64.");
}

}  // namespace tcpx
