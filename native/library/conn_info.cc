#include "library/conn_info.h"

#include <cstring>

#include "tcpx_p2p/session.h"

namespace tcpx_p2p {
namespace {

constexpr char kMagic[] = "tcpx-mpi";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr size_t kHeaderBytes = kMagicBytes + 4 * 2 + 2 * 8 + 2;
constexpr size_t kChecksumBytes = 4;

// As zlib's.
uint32_t crc32(const char* data, size_t bytes) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<uint8_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

template <typename Number>
void put(std::string* to, Number value) {
  for (size_t i = 0; i < sizeof(value); ++i) to->push_back(static_cast<char>(value >> 8 * i));
}

template <typename Number>
Number take(const std::string& from, size_t* at) {
  Number value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value = static_cast<Number>(value | Number{static_cast<uint8_t>(from[(*at)++])} << 8 * i);
  }
  return value;
}

template <typename Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else {
    return std::to_string(value);
  }
}

template <typename Value>
void require_same(Status status, const std::string& name, const Value& ours, const Value& theirs) {
  if (ours == theirs) return;
  throw UsageError(status, "the peer's " + name + " (" + text_of(theirs) +
                               ") is not this side's (" + text_of(ours) + "); use one value");
}

}  // namespace

std::string encode(const ConnInfo& info) {
  std::string bytes = kMagic;
  put<uint16_t>(&bytes, kInfoVersion);
  put<uint16_t>(&bytes, static_cast<uint16_t>(info.handles.size()));
  put<uint16_t>(&bytes, kNetHandleBytes);
  put<uint16_t>(&bytes, 0);
  put<uint64_t>(&bytes, info.chunk_bytes);
  put<uint64_t>(&bytes, info.wire_chunk_bytes);
  put<uint16_t>(&bytes, static_cast<uint16_t>(info.plugin.size()));
  bytes += info.plugin;
  for (const Handle& handle : info.handles) {
    bytes.append(reinterpret_cast<const char*>(handle.data()), handle.size());
  }
  put<uint32_t>(&bytes, crc32(bytes.data(), bytes.size()));
  return bytes;
}

ConnInfo decode(const std::string& bytes) {
  const std::string size = std::to_string(bytes.size());
  if (bytes.compare(0, kMagicBytes, kMagic) != 0) {
    throw UsageError(Status::kBadInfo, "not connection info (" + size +
                                           " bytes that do not begin with 'tcpx-mpi'): give what "
                                           "the peer's listen() returned");
  }
  if (bytes.size() < kHeaderBytes + kChecksumBytes) {
    throw UsageError(Status::kBadInfo,
                     "connection info is cut off after " + size + " bytes: send all of it");
  }
  size_t at = kMagicBytes;
  const auto version = take<uint16_t>(bytes, &at);
  if (version != kInfoVersion) {
    throw UsageError(Status::kOtherVersion,
                     "connection info has version " + std::to_string(version) + ", expected " +
                         std::to_string(kInfoVersion) + ": use the same tcpx-mpi on both sides");
  }
  const auto channels = take<uint16_t>(bytes, &at);
  const auto handle_bytes = take<uint16_t>(bytes, &at);
  take<uint16_t>(bytes, &at);
  ConnInfo info;
  info.chunk_bytes = take<uint64_t>(bytes, &at);
  info.wire_chunk_bytes = take<uint64_t>(bytes, &at);
  const auto name_bytes = take<uint16_t>(bytes, &at);
  const size_t expected =
      kHeaderBytes + name_bytes + size_t{channels} * handle_bytes + kChecksumBytes;
  if (bytes.size() != expected) {
    throw UsageError(Status::kBadInfo, "connection info has " + size + " bytes, expected " +
                                           std::to_string(expected) +
                                           ": send all of it, and nothing else");
  }
  size_t checksum_at = expected - kChecksumBytes;
  const uint32_t computed = crc32(bytes.data(), checksum_at);
  if (take<uint32_t>(bytes, &checksum_at) != computed) {
    throw UsageError(Status::kBadInfo,
                     "connection info is damaged (its checksum is wrong): send it as bytes");
  }
  if (handle_bytes != kNetHandleBytes) {
    throw UsageError(Status::kBadInfo, "a handle of the peer has " + std::to_string(handle_bytes) +
                                           " bytes, expected " + std::to_string(kNetHandleBytes));
  }
  info.plugin = bytes.substr(at, name_bytes);
  info.handles.resize(channels);
  at += name_bytes;
  for (Handle& handle : info.handles) {
    memcpy(handle.data(), bytes.data() + at, handle.size());
    at += handle.size();
  }
  return info;
}

void require_equal(const ConnInfo& ours, const ConnInfo& theirs) {
  require_same(Status::kOtherSettings, "channels", ours.handles.size(), theirs.handles.size());
  require_same(Status::kOtherSettings, "chunk bytes", ours.chunk_bytes, theirs.chunk_bytes);
  require_same(Status::kOtherPlugin, "plugin", ours.plugin, theirs.plugin);
  require_same(Status::kOtherSettings, "NCCL_DYNAMIC_CHUNK_SIZE", ours.wire_chunk_bytes,
               theirs.wire_chunk_bytes);
}

}  // namespace tcpx_p2p
