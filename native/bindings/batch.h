// What a batch leaves for Python: where each flow stood, what ended it early, when it did what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/bind.h"
#include "engine/batch_loop.h"

namespace tcpx {

// A fault whose texts are made; a baseline in Python makes its own.
struct BatchFault {
  std::string kind, call;
  int code = 0;
  std::string failed_call, text;
  int64_t age_ns = 0;
  int flow = -1;
  uint64_t iteration = 0, chunk = 0, bytes = 0;
};
BatchFault put_into_words(const Fault& fault);

// Arrays of its own: what the engine has is overwritten by the next batch.
struct Stamps {
  int64_t start;
  bool late;
  LongResult end, send_done, receive_done;
  std::vector<int> sources = {}, source_lanes = {};
  LongResult source_done = copied(nullptr, 0), trace = copied(nullptr, 0);
  LongResult flush_begun = copied(nullptr, 0);  // empty where none is flushed
};

}  // namespace tcpx
