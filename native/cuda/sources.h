// The kernels' sources, put into the library by the build: each with all that it includes.
#pragma once

namespace tcpx {

extern const char kUnpackSource[];
extern const char kPayloadSource[];
extern const char kElementsSource[];
extern const char kReduceSource[];
extern const char kStayingSource[];

}  // namespace tcpx
