#include "memory/policy.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <vector>

namespace tcpx {
namespace {

constexpr int kBind = 2;  // MPOL_BIND: nowhere else, not even where the node is full
constexpr int kMostNodes = 1024;
constexpr int kBits = sizeof(unsigned long) * CHAR_BIT;

}  // namespace

bool bind_memory_to(int node) {
  if (node < 0 || node >= kMostNodes) return false;
  std::vector<unsigned long> nodes(kMostNodes / kBits);
  nodes[node / kBits] |= 1UL << (node % kBits);
  // Without libnuma, which few machines have.
  return syscall(SYS_set_mempolicy, kBind, nodes.data(), kMostNodes + 1) == 0;
}

}  // namespace tcpx
