// The fault that the plugin has, by FAULT. These headers are parts of one source, faulty.cc.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

constexpr int kPatience = 20;  // calls until a fault of setting up shows

// Those who say it twice have a fault in one call alone.
bool fault(const char* name) {
  static const std::string chosen = getenv("FAULT") != nullptr ? getenv("FAULT") : "";
  return chosen == name;
}

// Faults of the device block; the first is none.
bool unpacks() {
  return fault("unpacks") || fault("buffer-a-comm") || fault("buffer-a-device") ||
         fault("other-unpack") || fault("type-without-entries");
}

// Of a plugin with room for one, the sends of a group would not fit.
bool takes_one() { return fault("one-request") || fault("full-fails"); }

[[noreturn]] void hang() {
  for (;;) pause();
}

}  // namespace
