// Where the fields of a version's properties are.
#pragma once

#include <cstddef>
#include <vector>

namespace tcpx {

struct Field {
  const char* name;
  size_t offset;
  size_t bytes;
};

// In order; what lies between two of them belongs to none. Empty for a version we do not know.
std::vector<Field> properties_layout(int abi);

}  // namespace tcpx
