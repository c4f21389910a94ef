#include "library/nixl/metadata.h"

#include "library/nixl/fields.h"

namespace tcpx::nixl {
namespace {

constexpr char kInfoMagic[] = "TCPX-NIXL-2";
constexpr char kRegionMagic[] = "TCPX-MEM-1";
constexpr size_t kMaxAddresses = 16;
constexpr size_t kMaxAddress = 64;

template <typename Value>
std::string differs(const char* what, const Value& here, const Value& there) {
  std::string text = std::string(what) + " differs: ";
  if constexpr (std::is_same_v<Value, std::string>) {
    return text + here + " here, " + there + " there";
  } else {
    return text + std::to_string(here) + " here, " + std::to_string(there) + " there";
  }
}

}  // namespace

std::string difference(const Terms& here, const Terms& there) {
  if (here.plugin != there.plugin) return differs("the plugin", here.plugin, there.plugin);
  if (here.channels != there.channels) {
    return differs("channels", here.channels, there.channels);
  }
  if (here.chunk_bytes != there.chunk_bytes) {
    return differs("chunk_bytes", here.chunk_bytes, there.chunk_bytes);
  }
  if (here.stage_below != there.stage_below) {
    return differs("stage_below", here.stage_below, there.stage_below);
  }
  if (here.stage_bytes != there.stage_bytes) {
    return differs("stage_bytes", here.stage_bytes, there.stage_bytes);
  }
  return "";
}

void put_terms(std::string& out, const Terms& terms) {
  put_text(out, terms.plugin);
  put(out, terms.channels);
  put(out, terms.chunk_bytes);
  put(out, terms.stage_below);
  put(out, terms.stage_bytes);
}

Terms take_terms(Fields& fields) {
  Terms terms;
  terms.plugin = fields.text("the plugin's name", kMaxName);
  terms.channels = fields.bounded<uint16_t>("channels", 1, kMaxChannels);
  terms.chunk_bytes = fields.bounded<uint64_t>("chunk bytes", 1, uint64_t{1} << 40);
  terms.stage_below = fields.bounded<uint64_t>("the staging bound", 0, uint64_t{1} << 40);
  terms.stage_bytes = fields.bounded<uint64_t>("staging bytes", 1, uint64_t{1} << 40);
  return terms;
}

std::string write_connection_info(const ConnectionInfo& info) {
  std::string out;
  put_text(out, kInfoMagic);
  put_terms(out, info.terms);
  put_token(out, info.token);
  put_text(out, info.machine);
  put(out, info.port);
  put(out, static_cast<uint16_t>(info.addresses.size()));
  for (const std::string& address : info.addresses) put_text(out, address);
  return out;
}

ConnectionInfo read_connection_info(std::string_view text) {
  Fields fields(text);
  if (fields.text("the kind of connection info", 64) != kInfoMagic) {
    throw WireError("this is no connection info of " + std::string(kInfoMagic));
  }
  ConnectionInfo info;
  info.terms = take_terms(fields);
  info.token = take_token(fields);
  info.machine = fields.text("the machine", kMaxName);
  info.port = fields.bounded<uint16_t>("the port", 1, 65535);
  const uint16_t count = fields.bounded<uint16_t>("the number of addresses", 1, kMaxAddresses);
  for (int i = 0; i < count; ++i) {
    info.addresses.emplace_back(fields.text("an address", kMaxAddress));
  }
  fields.end("connection info");
  return info;
}

std::string write_region_info(const RegionInfo& info) {
  std::string out;
  put_text(out, kRegionMagic);
  put(out, info.region);
  put(out, info.address);
  put(out, info.bytes);
  put(out, info.memory);
  return out;
}

RegionInfo read_region_info(std::string_view text) {
  Fields fields(text);
  if (fields.text("the kind of metadata", 64) != kRegionMagic) {
    throw WireError("this is no metadata of " + std::string(kRegionMagic));
  }
  RegionInfo info;
  info.region = fields.number<uint64_t>("the region");
  info.address = fields.number<uint64_t>("the address");
  info.bytes = fields.bounded<uint64_t>("the length of a region", 1, UINT64_MAX - info.address);
  info.memory = fields.bounded<uint32_t>("the kind of memory", 0, 1);
  fields.end("metadata");
  return info;
}

}  // namespace tcpx::nixl
