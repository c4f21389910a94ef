// What sessions that were closed have left under way, for whoever makes progress after them.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/leftovers.h"
#include "net/library.h"

namespace tcpx_p2p::outlived {

void add(std::shared_ptr<tcpx::Plugin> plugin, std::shared_ptr<tcpx::Leftovers> leftovers);
// One round; true when something ended.
bool advance();
size_t count();  // of connections

}  // namespace tcpx_p2p::outlived
