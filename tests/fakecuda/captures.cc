// Captures of graphs, as far as they concern others: what spoils one, and who is refused meanwhile.
#include <utility>

#include "fake.h"

namespace fakecuda {
namespace {

enum Mode { kGlobal = 0, kRelaxed = 2 };
thread_local int mode_of_thread = kGlobal;

}  // namespace

CUresult refuse_while_captured() {
  if (mode_of_thread == kRelaxed || driver().captures.empty()) return kSuccess;
  for (auto& [stream, whole] : driver().captures) whole = false;
  return kCaptureUnsupported;
}

}  // namespace fakecuda

using namespace fakecuda;

FAKECUDA_API CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER();
  if (*mode < kGlobal || *mode > kRelaxed) return kInvalidValue;
  std::swap(*mode, mode_of_thread);
  return kSuccess;
}

FAKECUDA_API CUresult cuStreamBeginCapture_v2(void* handle, int mode) {
  ENTER_CONTEXT();
  CUresult error;
  Stream* stream = stream_of(context, handle, &error);
  if (error != kSuccess) return error;
  if (handle == nullptr || mode != kGlobal) return kInvalidValue;  // the others spoil less
  driver().captures[stream] = true;
  return kSuccess;
}

FAKECUDA_API CUresult cuStreamEndCapture(void* handle, void** graph) {
  ENTER_CONTEXT();
  const auto found = driver().captures.find(static_cast<Stream*>(handle));
  if (found == driver().captures.end()) return kInvalidValue;
  const bool whole = found->second;
  driver().captures.erase(found);
  *graph = nullptr;  // nobody launches one here
  return whole ? kSuccess : kCaptureInvalidated;
}
