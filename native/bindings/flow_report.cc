#include "bindings/flow_report.h"

#include <nanobind/stl/string.h>

#include "cuda/driver.h"
#include "engine/clock.h"
#include "net/net.h"

namespace tcpx {
namespace {

const char* kind_name(FlowKind kind) {
  switch (kind) {
    case FlowKind::kSend:
      return "send";
    case FlowKind::kReceive:
      return "receive";
    default:
      return "copy";
  }
}

const char* fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kPlugin:
      return "plugin";
    case FaultKind::kStall:
      return "stall";
    case FaultKind::kSize:
      return "size";
    case FaultKind::kInterrupted:
      return "interrupted";
    case FaultKind::kTimeout:
      return "timeout";
    case FaultKind::kStopped:
      return "stopped";
    case FaultKind::kSocket:
      return "socket";
    case FaultKind::kGpu:
      return "gpu";
    case FaultKind::kHang:
      return "hang";
    default:
      return "none";
  }
}

}  // namespace

Fields dict_of(const FlowFault& fault) {
  Fields d;
  d["kind"] = fault_name(fault.kind);
  d["call"] = fault.call;
  d["code"] = fault.code;
  d["code_name"] = fault.kind == FaultKind::kGpu ? cuda_error_name(fault.code)
                                                 : std::string(result_name(fault.code));
  const bool waited = fault.kind == FaultKind::kStall || fault.kind == FaultKind::kHang;
  d["said"] = waited ? plugin_log::quote_since(fault.since_ns) : plugin_log::quote(fault.said);
  d["age_ns"] = waited ? now_ns() - fault.since_ns : int64_t{0};
  d["direction"] = kind_name(fault.direction);
  d["channel"] = fault.channel;
  d["chunk"] = fault.chunk;
  d["bytes"] = fault.bytes;
  return d;
}

Fields dict_of(const FlowPicture& picture) {
  Fields row;
  row["kind"] = kind_name(picture.kind);
  row["channel"] = picture.channel;
  row["window"] = picture.window;
  row["posted"] = picture.posted;
  row["arrived"] = picture.arrived;
  row["flushing"] = picture.flushing;
  row["completed"] = picture.completed;
  row["bytes"] = picture.bytes;
  row["oldest_chunk"] = picture.oldest_chunk;
  row["oldest_bytes"] = picture.oldest_bytes;
  row["oldest_age_ns"] = picture.oldest_age_ns;
  return row;
}

}  // namespace tcpx
