#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "net/library.h"

namespace tcpx {
namespace {

class DeviceProperties : public nb::dict {
  NB_OBJECT_DEFAULT(DeviceProperties, nb::dict, "DeviceProperties", PyDict_Check)
};
class PluginFacts : public nb::dict {
  NB_OBJECT_DEFAULT(PluginFacts, nb::dict, "PluginFacts", PyDict_Check)
};

DeviceProperties properties_of(Plugin& plugin, int device) {
  NetProperties p;
  const int code = [&] {
    const nb::gil_scoped_release release;
    return plugin.net().properties(device, &p);
  }();
  if (code != kNetSuccess) {
    throw PluginError("getProperties", code, "device " + std::to_string(device));
  }
  DeviceProperties d;
  d["name"] = p.name;
  d["pci_path"] = p.pci_path;
  d["guid"] = p.guid;
  d["ptr_support"] = p.ptr_support;
  d["speed_mbps"] = p.speed_mbps;
  d["port"] = p.port;
  d["latency_us"] = p.latency_us;
  d["max_comms"] = p.max_comms;
  d["max_recvs"] = p.max_recvs;
  d["reg_is_global"] = p.reg_is_global;
  d["force_flush"] = p.force_flush;
  d["device_type"] = p.device_type;
  d["device_version"] = p.device_version;
  d["max_multi_request"] = p.max_multi_request;
  d["max_p2p_bytes"] = p.max_p2p_bytes;
  d["parts"] = p.parts;
  d["rail_id"] = p.rail_id;
  d["plane_id"] = p.plane_id;
  return d;
}

int count_devices(Plugin& plugin) {
  int count = 0;
  const int code = plugin.net().devices(&count);
  if (code != kNetSuccess) throw PluginError("devices", code, "");
  return count;
}

}  // namespace

void bind_plugin(nb::module_& m) {
  nb::class_<Plugin>(m, "Plugin")
      .def(nb::init<const std::string&, int>(), "path"_a, "abi"_a = 0)
      .def_prop_ro("path", &Plugin::path)
      .def_prop_ro("abi_versions", &Plugin::abi_versions)
      .def_prop_ro("abi", [](Plugin& p) { return p.net().abi(); })
      .def_prop_ro("name", [](Plugin& p) { return p.net().name(); })
      .def_prop_ro("offers_dma_buf", [](Plugin& p) { return p.net().offers_dma_buf(); })
      .def_prop_ro("has_contexts", [](Plugin& p) { return p.net().has_contexts(); })
      .def_prop_ro("offers_traffic_class", [](Plugin& p) { return p.net().offers_traffic_class(); })
      .def("init", &Plugin::init, "traffic_class"_a = -1, nb::call_guard<nb::gil_scoped_release>())
      .def("finalize", &Plugin::finalize, nb::call_guard<nb::gil_scoped_release>())
      .def("devices", &count_devices, nb::call_guard<nb::gil_scoped_release>())
      .def("properties", &properties_of, "device"_a);

  m.def(
      "probe",
      [](const std::string& path, int abi) {
        Plugin plugin(path, abi);
        PluginFacts d;
        d["path"] = plugin.path();
        d["abi_versions"] = plugin.abi_versions();
        d["abi"] = plugin.net().abi();
        d["name"] = plugin.net().name();
        return d;
      },
      "path"_a, "abi"_a = 0,
      "What a file offers, without initialising it; `abi` forces a version of its table. Raises "
      "LibraryError.");
}

}  // namespace tcpx
