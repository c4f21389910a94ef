#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "build_info.h"
#include "engine/connections.h"
#include "engine/program.h"
#include "engine/session.h"
#include "net/library.h"

namespace tcpx {

LongResult copied(const int64_t* data, size_t count) {
  auto* copy = new int64_t[count > 0 ? count : 1];
  std::copy(data, data + count, copy);
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
  return LongResult(copy, {count}, owner);
}

}  // namespace tcpx

NB_MODULE(_native, m) {
  using namespace tcpx;
  nb::set_leak_warnings(false);  // an aborting run leaves without ceremony

  nb::exception<LibraryError>(m, "LibraryError");
  nb::exception<PluginError>(m, "PluginError");
  nb::exception<IncompleteTable>(m, "IncompleteTable");
  nb::exception<ConnectTimeout>(m, "ConnectTimeout");
  nb::exception<Interrupt>(m, "Interrupt");

  nb::dict build;
  build["compiler"] = kBuildCompiler;
  build["type"] = kBuildType;
  build["flags"] = kBuildFlags;
  m.attr("BUILD") = build;
  m.attr("MAX_CHUNK_BYTES") = kMaxChunkBytes;
  m.attr("MAX_REQUESTS") = static_cast<int>(kNetMaxRequests);
  m.attr("HANDLE_BYTES") = static_cast<int>(kNetHandleBytes);
  m.attr("PTR_HOST") = static_cast<int>(kNetPtrHost);
  m.attr("PTR_CUDA") = static_cast<int>(kNetPtrCuda);
  m.attr("PTR_DMABUF") = static_cast<int>(kNetPtrDmaBuf);
  m.attr("KNOWN_ABI") = nb::cast(known_abi_versions());
  m.attr("DEVICE_UNPACK") = static_cast<int>(kNetDeviceUnpack);

  bind_process(m);
  bind_plugin(m);
  bind_net(m);
  bind_memory(m);
  bind_cuda(m);
  bind_reduce(m);
  bind_batch(m);
  bind_runner(m);
  bind_engine(m);
  bind_sockets(m);
  bind_baselines(m);
  bind_session(m);
}
