// Fields of the control stream and of metadata: numbers in little endian, texts with their length.
//
// What is read may be anybody's: each field is checked against its bounds before anything is
// allocated for it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "proof/token.h"

namespace tcpx::nixl {

static_assert(std::endian::native == std::endian::little);

// A frame or a field that is out of bounds.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename Number>
void put(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<uint32_t>(text.size()));
  out.append(text);
}

// Takes fields from the front of a body.
class Fields {
 public:
  explicit Fields(std::string_view body) : rest_(body) {}

  std::string_view bytes(size_t count, const char* field) {
    if (rest_.size() < count) {
      throw WireError(std::string(field) + " ends the frame early: " + std::to_string(count) +
                      " bytes are due, " + std::to_string(rest_.size()) + " are there");
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  template <typename Number>
  Number number(const char* field) {
    Number value;
    memcpy(&value, bytes(sizeof(value), field).data(), sizeof(value));
    return value;
  }

  template <typename Number>
  Number bounded(const char* field, Number least, Number most) {
    const Number value = number<Number>(field);
    if (value < least || value > most) {
      throw WireError(std::string(field) + " is " + std::to_string(value) + ", outside of " +
                      std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }

  std::string_view text(const char* field, size_t most) {
    return bytes(bounded<uint32_t>(field, 0, static_cast<uint32_t>(most)), field);
  }

  std::string_view rest() {
    const std::string_view all = rest_;
    rest_ = {};
    return all;
  }

  void end(const char* what) const {
    if (!rest_.empty()) {
      throw WireError(std::string(what) + " has " + std::to_string(rest_.size()) +
                      " bytes too many");
    }
  }

 private:
  std::string_view rest_;
};

inline void put_token(std::string& out, const Token& token) {
  out.append(reinterpret_cast<const char*>(token.bytes), sizeof(token.bytes));
}

inline Token take_token(Fields& fields) {
  Token token;
  memcpy(token.bytes, fields.bytes(sizeof(token.bytes), "a token").data(), sizeof(token.bytes));
  return token;
}

}  // namespace tcpx::nixl
