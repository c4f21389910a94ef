// What one side of a session tells the other so that it can connect: a few hundred bytes, checked.
//
// Layout, little-endian: magic, version, channels, bytes a handle, reserved 0, chunk bytes, the
// plugin's own chunk bytes, length of its name; the name; a handle a channel; CRC-32 of all before.
// Python's tcpx_mpi/session/connection_info.py reads and writes the same.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "net/abi.h"

namespace tcpx_p2p {

constexpr uint16_t kInfoVersion = 2;

using Handle = std::array<uint8_t, kNetHandleBytes>;

struct ConnInfo {
  std::string plugin;
  uint64_t chunk_bytes = 0;
  uint64_t wire_chunk_bytes = 0;  // NCCL_DYNAMIC_CHUNK_SIZE when its plugin was loaded
  std::vector<Handle> handles;    // by channel
};

std::string encode(const ConnInfo& info);

// Throws UsageError if these bytes are none, damaged, or of another version. Nothing in them is
// trusted before the checksum is right.
ConnInfo decode(const std::string& bytes);

// Throws UsageError if a side with `ours` cannot talk to one with `theirs`.
void require_equal(const ConnInfo& ours, const ConnInfo& theirs);

}  // namespace tcpx_p2p
