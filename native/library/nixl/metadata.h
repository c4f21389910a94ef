// What NIXL carries between agents: how one is reached, on which terms, and its regions of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proof/token.h"

namespace tcpx::nixl {

class Fields;

constexpr size_t kMaxName = 4096;  // of an agent
constexpr size_t kMaxChannels = 16;

// What must be alike on both sides, for both cut a request into the same messages.
struct Terms {
  std::string plugin;  // its name as its table says it
  uint16_t channels = 0;
  uint64_t chunk_bytes = 0;
  uint64_t stage_below = 0;
  uint64_t stage_bytes = 0;
};
// "" where they are; else which is not, with both values.
std::string difference(const Terms& here, const Terms& there);
// As fields of metadata and of a greeting. take_terms throws WireError.
void put_terms(std::string& out, const Terms& terms);
Terms take_terms(Fields& fields);

// How an agent is reached, as NIXL carries it between agents.
struct ConnectionInfo {
  Terms terms;
  Token token{};        // of this engine, a secret: who proves to have it has this info
  std::string machine;  // whoever has the same one may use loopback
  uint16_t port = 0;
  std::vector<std::string> addresses;  // numeric, the best first
};
// read_* throw WireError.
std::string write_connection_info(const ConnectionInfo& info);
ConnectionInfo read_connection_info(std::string_view text);

// Of registered memory, for the agents that name it.
struct RegionInfo {
  uint64_t region;
  uint64_t address;
  uint64_t bytes;
  uint32_t memory;
};
std::string write_region_info(const RegionInfo& info);
RegionInfo read_region_info(std::string_view text);

}  // namespace tcpx::nixl
