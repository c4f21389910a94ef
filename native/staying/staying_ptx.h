// staying.cu for the driver's own compiler, of any GPU from sm_70 on: softtcpx has no other, in
// whoever's process it is. make_ptx.py makes it anew.
#pragma once

namespace tcpx {

extern const char kStayingPtx[];

}  // namespace tcpx
