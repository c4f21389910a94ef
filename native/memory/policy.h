// On which NUMA node the memory of this process comes to lie.
#pragma once

namespace tcpx {

// From now on memory that this thread, or one that it starts, touches first lies on `node`.
// False if the kernel refuses: no such node, or a container that may not ask.
bool bind_memory_to(int node);

}  // namespace tcpx
