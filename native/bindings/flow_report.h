// What is told of a flow, as dicts: the part that batches and sessions share.
#pragma once

#include "bindings/bind.h"
#include "engine/flow_report.h"

namespace tcpx {

Fields dict_of(const FlowFault& fault);
Fields dict_of(const FlowPicture& picture);

}  // namespace tcpx
