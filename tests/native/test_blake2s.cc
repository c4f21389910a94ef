// softtcpx's BLAKE2s against what its authors and RFC 7693 publish.
#include <numeric>
#include <string>
#include <vector>

#include "check.h"
#include "proof/blake2s.h"

using tcpx::blake2s;
using Bytes = std::vector<uint8_t>;

namespace {

std::string hex(const Bytes& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

Bytes hash_of(const Bytes& data, const Bytes& key, size_t size) {
  Bytes hash(size);
  blake2s(hash.data(), size, key.data(), key.size(), data.data(), data.size());
  return hash;
}

Bytes counting(size_t count) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

// The numbers of RFC 7693, appendix E: a Fibonacci sequence from a seed, its highest bytes.
Bytes sequence(size_t count, uint32_t seed) {
  uint32_t before = 0xdead4bad * seed, last = 1;
  Bytes bytes;
  while (bytes.size() < count) {
    const uint32_t next = before + last;
    before = last;
    last = next;
    bytes.push_back(static_cast<uint8_t>(next >> 24));
  }
  return bytes;
}

}  // namespace

TEST(the_example_of_the_rfc) {
  CHECK_EQ(hex(hash_of({'a', 'b', 'c'}, {}, 32)),
           "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
}

TEST(the_grand_hash_of_the_rfc_over_sizes_lengths_and_keys) {
  Bytes all;
  for (const size_t size : {16, 20, 28, 32}) {
    for (const size_t length : {0, 3, 64, 65, 255, 1024}) {
      const Bytes data = sequence(length, static_cast<uint32_t>(length));
      for (const Bytes& key : {Bytes{}, sequence(size, static_cast<uint32_t>(size))}) {
        const Bytes hash = hash_of(data, key, size);
        all.insert(all.end(), hash.begin(), hash.end());
      }
    }
  }
  CHECK_EQ(hex(hash_of(all, {}, 32)),
           "6a411f08ce25adcdfb02aba641451cec53c598b24f4fc787fbdc88797f4c1dfe");
}

TEST(the_authors_answers_under_a_key) {
  const Bytes key = counting(32);
  CHECK_EQ(hex(hash_of({}, key, 32)),
           "48a8997da407876b3d79c0d92325ad3b89cbb754d86ab71aee047ad345fd2c49");
  CHECK_EQ(hex(hash_of(counting(1), key, 32)),
           "40d15fee7c328830166ac3f918650f807e7e01e177258cdc0a39b11f598066f1");
  CHECK_EQ(hex(hash_of(counting(64), key, 32)),
           "8975b0577fd35566d750b362b0897a26c399136df07bababbde6203ff2954ed4");
  CHECK_EQ(hex(hash_of(counting(255), key, 32)),
           "3fb735061abc519dfe979e54c1ee5bfad0a9d858b3315bad34bde999efd724dd");
}

CHECK_MAIN()
