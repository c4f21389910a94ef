#include "library/words.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "net/logger.h"

namespace tcpx_p2p {
namespace {

// Codes by which a plugin says that the other side is gone.
constexpr int kSystemError = 2;
constexpr int kRemoteError = 6;

const char* way_of(tcpx::FlowKind kind) {
  return kind == tcpx::FlowKind::kSend ? "send" : "receive";
}

}  // namespace

std::string size_text(uint64_t bytes) {
  static constexpr const char* kNames[] = {"TiB", "GiB", "MiB", "KiB"};
  for (int i = 0; i < 4; ++i) {
    const uint64_t unit = uint64_t{1} << 10 * (4 - i);
    if (bytes < unit) continue;
    char text[32];
    snprintf(text, sizeof(text), "%.2f", static_cast<double>(bytes) / static_cast<double>(unit));
    std::string number = text;
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    return number + " " + kNames[i];
  }
  return std::to_string(bytes) + " B";
}

std::string seconds_text(double seconds) {
  char text[32];
  snprintf(text, sizeof(text), "%g", seconds);
  return text;
}

Status status_of(const tcpx::TransferFault& fault) {
  switch (fault.kind) {
    case tcpx::FaultKind::kGpu:
      return Status::kGpuFailed;
    case tcpx::FaultKind::kSize:
      return Status::kWrongBytes;
    case tcpx::FaultKind::kStopped:
      return Status::kRemoteFailed;
    default:
      return fault.code == kSystemError || fault.code == kRemoteError ? Status::kRemoteLost
                                                                      : Status::kPluginFailed;
  }
}

std::string text_of(const tcpx::TransferFault& fault) {
  if (fault.kind == tcpx::FaultKind::kGpu) return tcpx::failed_call(fault);
  const std::string where = "transfer " + std::to_string(fault.transfer) + ": " +
                            way_of(fault.direction) + " message " + std::to_string(fault.message) +
                            ", channel " + std::to_string(fault.channel) + ", chunk " +
                            std::to_string(fault.chunk) + " (" + size_text(fault.bytes) + ")";
  if (fault.kind == tcpx::FaultKind::kSize) {
    const std::string size = size_text(static_cast<uint64_t>(fault.code));
    if (static_cast<uint64_t>(fault.code) != fault.bytes) {
      return where + ": the plugin reports " + size + ": the peer's message has another size";
    }
    return where + ": the plugin lists fragments of " + size + " beyond its end";
  }
  std::string text = where + ": " + tcpx::failed_call(fault);
  if (status_of(fault) == Status::kRemoteLost) {
    text += ": the peer is gone, or its connection is";
  }
  return text + tcpx::plugin_log::quote(fault.said);
}

std::string stall_text(uint64_t number, double patience_s,
                       const std::vector<tcpx::TransferPicture>& picture, const std::string& said) {
  const std::string text =
      "transfer " + std::to_string(number) + ": no progress for " + seconds_text(patience_s) + " s";
  const tcpx::TransferPicture* oldest = nullptr;
  for (const bool own : {true, false}) {  // of this transfer, or else of any
    if (oldest != nullptr) break;
    for (const tcpx::TransferPicture& flow : picture) {
      if (flow.oldest_age_ns < 0 || (own && flow.oldest_transfer != number)) continue;
      if (oldest == nullptr || flow.oldest_age_ns > oldest->oldest_age_ns) oldest = &flow;
    }
  }
  if (oldest == nullptr) {
    return text + "; nothing is posted, the plugin takes no request" + said;
  }
  char age[32];
  snprintf(age, sizeof(age), "%.1f", static_cast<double>(oldest->oldest_age_ns) / 1e9);
  std::string waits;
  if (oldest->arrived > oldest->completed) {
    waits = "; " + std::to_string(oldest->arrived - oldest->completed) +
            " receives have arrived and wait for this session's GPU";
  }
  return text + waits + "; " + way_of(oldest->kind) + ", channel " +
         std::to_string(oldest->channel) + ": window " +
         std::to_string(oldest->posted - oldest->completed) + "/" + std::to_string(oldest->window) +
         ", oldest: transfer " + std::to_string(oldest->oldest_transfer) + ", message " +
         std::to_string(oldest->oldest_message) + ", chunk " +
         std::to_string(oldest->oldest_chunk) + ", " + size_text(oldest->oldest_bytes) +
         ", posted " + age + " s ago; " + size_text(oldest->bytes) + " moved" + said;
}

}  // namespace tcpx_p2p
