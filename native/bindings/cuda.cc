#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "cuda/compiler.h"
#include "cuda/gpu.h"
#include "memory/cuda_slots.h"

namespace tcpx {
namespace {

class CudaDevice : public nb::dict {
  NB_OBJECT_DEFAULT(CudaDevice, nb::dict, "CudaDevice", PyDict_Check)
};

List<CudaDevice> devices() {
  List<CudaDevice> rows;
  for (const GpuFacts& gpu : gpus()) {
    CudaDevice row;
    row["ordinal"] = gpu.ordinal;
    row["name"] = gpu.name;
    row["pci"] = gpu.pci;
    row["uuid"] = gpu.uuid;
    row["total_bytes"] = gpu.total_bytes;
    row["capability"] = nb::make_tuple(gpu.major, gpu.minor);
    row["multiprocessors"] = gpu.multiprocessors;
    row["dma_buf"] = gpu.dma_buf;
    rows.append(row);
  }
  return rows;
}

std::string driver_version() {
  int version = 0;
  check_cuda(cuda().driver_version(&version), "cuDriverGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

void bind_cuda(nb::module_& m) {
  nb::exception<CudaUnavailable>(m, "CudaUnavailable");
  nb::exception<CudaError>(m, "CudaError");
  m.def("cuda_devices", &devices,
        "The visible GPUs, in the order of their numbers. Raises CudaUnavailable with the reason "
        "where there is none.");
  m.def(
      "cuda_select", [](int gpu) { use_gpu(gpu).select(); }, "gpu"_a,
      "Makes this GPU current on the calling thread.");
  m.def(
      "cuda_configure",
      [](const std::string& cache, const std::vector<std::string>& nvrtc_folders) {
        set_cuda_compiler({nvrtc_folders, cache});
      },
      "cache"_a, "nvrtc_folders"_a,
      "Before the first use of a GPU: where compiled kernels are kept, and where NVRTC may be.");
  m.def("cuda_driver_version", &driver_version, "The CUDA that the driver speaks: 13.0.");
  m.def(
      "nvrtc_found",
      []() -> std::tuple<std::string, std::string> {
        const NvrtcFound found = find_nvrtc();
        return std::make_tuple(found.version, found.path);
      },
      "Version and path. Raises CudaUnavailable where there is none.");
  m.def(
      "cuda_compile", [](int gpu) { use_gpu(gpu).kernels(); }, "gpu"_a,
      nb::call_guard<nb::gil_scoped_release>(), "Compiles the kernels, or finds them compiled.");

  nb::class_<CudaSlots, SlotMemory>(m, "CudaSlots")
      .def(nb::init<CudaAddress, size_t, int>(), "pointer"_a, "bytes"_a, "gpu"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def(
          "read",
          [](const CudaSlots& slots, size_t offset, size_t bytes) {
            std::vector<uint8_t> out(bytes);
            slots.read(out.data(), offset, bytes);
            return nb::bytes(out.data(), bytes);
          },
          "offset"_a, "bytes"_a);
}

}  // namespace tcpx
