// The calls of plugins that are under way, but those of messages: what a thread is in that does not
// come back. Each thread has a record, which it alone writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "net/logger.h"

namespace tcpx::plugin_call {

// What the calls of this thread are about while it lives, in words that are made when somebody
// asks: of which comm, say.
class About {
 public:
  using Words = std::string (*)(const void*);
  About(const void* subject, Words words);
  ~About();
  About(const About&) = delete;
  About& operator=(const About&) = delete;
};

struct UnderWay {
  std::string what;  // "listen from rank 1, lane 0, channel 0"
  int64_t since_ns;  // CLOCK_MONOTONIC
};
// Of all threads the one that began first; none. From any thread.
std::optional<UnderWay> oldest();

// The call that this thread is in, or nullptr. Safe in a handler of signals.
const char* current();

class Mark {
 public:
  explicit Mark(const char* name);
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  const plugin_log::SetUpCall heard_;
};

// The exception that is being handled: its type, and what it says.
std::string thrown();
// The same, of a call, as a PluginThrew.
[[noreturn]] void throw_named(const char* call);

// A call of a plugin that is not of messages.
template <typename Call>
int run(const char* name, const Call& call) {
  const Mark mark(name);
  try {
    return call();
  } catch (...) {
    throw_named(name);
  }
}

}  // namespace tcpx::plugin_call
