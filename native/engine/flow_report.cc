#include "engine/flow_report.h"

#include "cuda/driver.h"
#include "net/net.h"

namespace tcpx {

std::string failed_call(const FlowFault& fault) {
  if (fault.kind == FaultKind::kPlugin) return returned_text(fault.call, fault.code);
  if (fault.kind != FaultKind::kGpu) return "";
  return std::string("CUDA driver call ") + fault.call + " returned " + std::to_string(fault.code) +
         " (" + cuda_error_name(fault.code) + ") while receives were unpacked";
}

}  // namespace tcpx
