// What a plugin calls itself, its devices, or says, as text that can be printed and stored: UTF-8
// on one line. It may be any bytes.
#pragma once

#include <cstddef>
#include <string>

namespace tcpx {

// The bytes of the character that a text begins with; 0 where it is none.
inline int utf8_bytes(const char* text) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const int bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (int i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;  // the end of the text, too
  }
  // Not written in the shortest way, halves of a pair of UTF-16, beyond the last one.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return 0;
  if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return 0;
  return bytes;
}

inline bool is_utf8(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const int bytes = utf8_bytes(text.c_str() + at);
    if (bytes == 0) return false;
    at += static_cast<size_t>(bytes);
  }
  return true;
}

// The same; 0 for a character that does not print, too: what a terminal takes for a command.
inline int printable_bytes(const char* text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return 0;
  if (first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0) return 0;
  return utf8_bytes(text);
}

// Other bytes as \xNN, and no more than a line can take.
inline std::string printable(const std::string& from, size_t most = 200) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  const char* text = from.c_str();
  while (text != from.c_str() + from.size()) {
    if (out.size() > most) return out + "...";
    const int bytes = printable_bytes(text);
    if (bytes > 0) {
      out.append(text, static_cast<size_t>(bytes));
    } else {
      const auto byte = static_cast<unsigned char>(*text);
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
    text += bytes > 0 ? bytes : 1;
  }
  return out;
}

// What is given may change meanwhile, as in the frame of a function that has returned: it is copied
// once.
inline std::string printable(const char* given, size_t most = 200) {
  std::string copy;
  copy.reserve(most + 8);
  for (const volatile char* at = given; copy.size() < most + 8; ++at) {
    const char byte = *at;
    if (byte == '\0') break;
    copy += byte;
  }
  return printable(copy, most);
}

// The same in place, with "?" for other bytes.
inline void make_printable(char* text) {
  while (*text != '\0') {
    const int bytes = printable_bytes(text);
    if (bytes == 0) *text = '?';
    text += bytes > 0 ? bytes : 1;
  }
}

}  // namespace tcpx
