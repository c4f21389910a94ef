// Runs a target over files instead of a fuzzer: `replay FILE...`.
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/input.h"

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s: cannot be read\n", arguments[i]);
      return 2;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s\n", arguments[i]);
    std::fflush(stdout);  // the last line names the culprit
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  return 0;
}
