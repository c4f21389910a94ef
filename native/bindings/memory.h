#pragma once

#include "bindings/bind.h"
#include "engine/batch_loop.h"
#include "memory/slots.h"

namespace tcpx {

inline SlotBase base_of(const SlotMemory& memory) {
  return {memory.slots().base, memory.slots().stride};
}

}  // namespace tcpx
