// The one call of NCCL that CuPy's binding lacks, for the stand-in of that binding, which asks for
// what was made. FAKENCCL_FAIL=N makes it fail with result N.
#include <cstdlib>
#include <cstring>
#include <vector>

#define FAKENCCL_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kInvalidArgument = 4;
constexpr int kFirstOfUsers = 5;  // after sum, prod, max, min and avg
constexpr int kHostMemory = 1;
constexpr int kTypes = 12;
constexpr int kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct Scaled {
  int type;
  unsigned char factor[8];
};

std::vector<Scaled>& made() {
  static std::vector<Scaled> all;
  return all;
}

}  // namespace

FAKENCCL_API int ncclRedOpCreatePreMulSum(int* op, const void* scalar, int type, int residence,
                                          const void* comm) {
  if (const char* code = std::getenv("FAKENCCL_FAIL")) return std::atoi(code);
  if (type < 0 || type >= kTypes || residence != kHostMemory || comm == nullptr) {
    return kInvalidArgument;
  }
  Scaled one{type, {}};
  std::memcpy(one.factor, scalar, kBytes[type]);
  made().push_back(one);
  *op = kFirstOfUsers + static_cast<int>(made().size()) - 1;
  return 0;
}

// The bytes of an operation's factor; nullptr for one of another type, or that nobody made.
FAKENCCL_API const void* fakenccl_factor(int op, int type) {
  const std::size_t index = op - kFirstOfUsers;
  if (index >= made().size() || made()[index].type != type) return nullptr;
  return made()[index].factor;
}
