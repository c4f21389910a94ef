#include "unpack/staying_unpacker.h"

#include <algorithm>

#include "cuda/sources.h"
#include "net/abi_v7.h"

namespace tcpx {
namespace {

constexpr uint64_t kLingerNs = 200'000;

}  // namespace

StayingUnpacker::StayingUnpacker(Gpu& gpu)
    : function_(gpu.function(kStayingSource, "stay_and_copy")),
      stream_(gpu),
      told_(gpu, sizeof(uint64_t)),
      memory_(gpu, Letters::kBytes),
      letters_(memory_.data(), memory_.address(), told_.address(), kLingerNs) {}

bool StayingUnpacker::takes(const UnpackItem& item) {
  if (item.fragment_count > kMostCopies) return false;
  const auto* const fragments = reinterpret_cast<const NetUnpackFragment*>(item.fragments);
  return std::all_of(fragments, fragments + item.fragment_count, [&](const NetUnpackFragment& f) {
    return Letters::can_say(item.bounce + f.src_off, item.destination + f.dst_off, f.len);
  });
}

void StayingUnpacker::put(const UnpackItem& item, uint64_t number) {
  const auto* const fragments = reinterpret_cast<const NetUnpackFragment*>(item.fragments);
  for (unsigned i = 0; i < item.fragment_count; ++i) {
    const NetUnpackFragment& f = fragments[i];
    letters_.add(item.bounce + f.src_off, item.destination + f.dst_off, f.len);
  }
  letters_.send(number);
}

int StayingUnpacker::tend() {
  if (!letters_.needs_kernel()) return 0;
  StayingArguments kernel = letters_.next_kernel();
  void* arguments[] = {&kernel};
  const int code = cuda().launch(function_, 1, 1, 1, kStayingThreads, 1, 1, 0, stream_.handle(),
                                 arguments, nullptr);
  if (code != 0) letters_.no_kernel();
  return code;
}

}  // namespace tcpx
