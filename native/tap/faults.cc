#include "tap/faults.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "net/abi.h"
#include "tap/settings.h"
#include "tap/ticks.h"

namespace tap {
namespace {

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(by, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse(const std::string& part, const std::string& expected) {
  throw BadSetting("TCPX_TAP_FAULT: " + part + ": expected " + expected);
}

int64_t integer_of(const std::string& part, const std::string& text) {
  const bool minus = !text.empty() && text[0] == '-';
  double value = 0;
  if (!parse_number(minus ? text.substr(1) : text, &value) || value != std::floor(value) ||
      value > 1e15)
    refuse(part, "a whole number behind the =");
  return static_cast<int64_t>(minus ? -value : value);
}

// The same for the same seed, comm and number, whoever asks in which order.
double drawn(uint64_t seed, uint64_t comm, uint64_t number) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u ^ (comm + 1) * 0xbf58476d1ce4e5b9u ^ number;
  for (int round = 0; round < 2; ++round) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1p-53;
}

}  // namespace

Faults::Fault Faults::parse(const std::string& text, int64_t* rank) {
  static const std::map<std::string, What> kWords = {
      {"delay", What::kDelay}, {"stuck", What::kStuck},           {"drop", What::kDrop},
      {"error", What::kError}, {"disconnect", What::kDisconnect}, {"size", What::kSize},
      {"flip", What::kFlip}};
  Fault fault{};
  bool first = true;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string word = part.substr(0, equals);
    const std::string value = equals != std::string::npos ? part.substr(equals + 1) : "";
    if (first) {
      const auto what = kWords.find(word);
      if (what == kWords.end())
        refuse(part,
               "delay=US, stuck, drop, error=CODE, disconnect, size=BYTES or flip=BYTE first");
      fault.what = what->second;
      const bool takes = fault.what != What::kStuck && fault.what != What::kDrop &&
                         fault.what != What::kDisconnect;
      if (takes) fault.value = integer_of(part, value);
      if (!takes && !value.empty()) refuse(part, word + " without a value");
      if (fault.value < 0 && fault.what != What::kSize) refuse(part, "0 or more");
      if (fault.what == What::kError && (fault.value < 1 || fault.value > 255))
        refuse(part, "a code of 1 to 255");
      first = false;
    } else if (word == "call") {
      const auto* name = std::find(std::begin(kCallNames), std::end(kCallNames), value);
      if (name == std::end(kCallNames)) refuse(part, "a call in NCCL's spelling, such as isend");
      fault.call = static_cast<int>(name - kCallNames);
    } else if (word == "comm") {
      fault.comm = integer_of(part, value);
    } else if (word == "at") {
      fault.at = integer_of(part, value);
    } else if (word == "seed") {
      fault.seed = static_cast<uint64_t>(integer_of(part, value));
    } else if (word == "rank") {
      *rank = integer_of(part, value);
    } else if (word == "p") {
      if (!parse_number(value, &fault.share) || fault.share > 1) refuse(part, "a share, 0 to 1");
    } else {
      refuse(part, "call=, comm=, at=, p=, seed= or rank=");
    }
  }
  const auto call = static_cast<Call>(fault.call);
  const bool posts = fault.call < 0 || call == Call::kIsend || call == Call::kIrecv;
  const bool anywhere = fault.what == What::kError || fault.what == What::kDelay;
  if (!posts && !anywhere) refuse(text, "call=isend or call=irecv for this fault");
  if (!posts && call != Call::kTest && fault.comm >= 0)
    refuse(text, "no comm= for a call that is none of isend, irecv and test");
  if (fault.what == What::kDelay && call == Call::kTest)
    refuse(text, "a delay of isend or irecv: test is where it is seen");
  if ((fault.what == What::kSize || fault.what == What::kFlip) && call == Call::kIsend)
    refuse(text, "call=irecv for this fault");
  return fault;
}

Faults::Faults(const std::string& text) {
  for (const std::string& part : split(text, ';')) {
    int64_t rank = -1;
    const Fault fault = parse(part, &rank);
    if (rank >= 0 && rank != rank_here()) continue;
    faults_.push_back(fault);
    text_ += (text_.empty() ? "" : "; ") + part;
  }
}

bool Faults::strikes(const Fault& fault, int64_t comm, int64_t number) const {
  if (fault.comm >= 0 && fault.comm != comm) return false;
  if (fault.at >= 0 && fault.at != number) return false;
  return fault.share >= 1 || drawn(fault.seed, static_cast<uint64_t>(comm),
                                   static_cast<uint64_t>(number)) < fault.share;
}

int Faults::of_call(Call call) {
  int64_t sleep_us = 0;
  int code = -1;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t number = calls_[static_cast<size_t>(call)]++;
    for (const Fault& fault : faults_) {
      if (fault.call != static_cast<int>(call) || !strikes(fault, -1, number)) continue;
      if (fault.what == What::kDelay) sleep_us += fault.value;
      if (fault.what == What::kError) code = static_cast<int>(fault.value);
    }
  }
  if (sleep_us > 0) {
    const timespec nap{sleep_us / 1'000'000, sleep_us % 1'000'000 * 1000};
    nanosleep(&nap, nullptr);
  }
  return code;
}

void Faults::registered(const void* mhandle, int type) {
  const std::lock_guard<std::mutex> lock(mutex_);
  types_[mhandle] = type;
}

int Faults::of_post(Call call, const Comm& comm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Fault& fault : faults_) {
    if (fault.call >= 0 && fault.call != static_cast<int>(call)) continue;
    if (!strikes(fault, comm.number, comm.posted)) continue;
    if (fault.what == What::kError) return static_cast<int>(fault.value);
    if (fault.what == What::kStuck) comms_.emplace(comm.number, State::kStuck);
    if (fault.what == What::kDisconnect) comms_[comm.number] = State::kGone;
  }
  const auto state = comms_.find(comm.number);
  return state != comms_.end() && state->second == State::kGone ? kNetRemoteError : -1;
}

void Faults::posted(Call call, const Comm& comm, const void* request, void* data, uint64_t bytes,
                    const void* mhandle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  held_.erase(request);  // of an earlier one with the same pointer
  for (const Fault& fault : faults_) {
    if (fault.call >= 0 && fault.call != static_cast<int>(call)) continue;
    if (!strikes(fault, comm.number, comm.posted - 1)) continue;
    if (fault.what == What::kStuck || fault.what == What::kDisconnect || fault.what == What::kError)
      continue;
    const bool receives = call == Call::kIrecv;
    if (fault.what == What::kSize && !receives) continue;
    if (fault.what == What::kFlip) {
      const auto type = types_.find(mhandle);
      const bool host = type != types_.end() && type->second == kNetPtrHost;
      if (!receives || !host || static_cast<uint64_t>(fault.value) >= bytes) continue;
    }
    held_[request] = {&fault, read_clock(CLOCK_MONOTONIC) + fault.value * 1000, data, bytes, false};
    return;
  }
}

int Faults::of_test(const Request& request, const void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Comm* comm = request.comm;
  for (const Fault& fault : faults_) {
    if (fault.call == static_cast<int>(Call::kTest) &&
        strikes(fault, comm->number, static_cast<Count>(request.count).number))
      return static_cast<int>(fault.value);
  }
  const auto state = comms_.find(comm->number);
  if (state != comms_.end()) return state->second == State::kGone ? kNetRemoteError : kNetSuccess;
  const auto held = held_.find(pointer);
  if (held == held_.end()) return -1;
  const bool early =
      held->second.fault->what == What::kDelay && read_clock(CLOCK_MONOTONIC) < held->second.due_ns;
  return early || held->second.over ? kNetSuccess : -1;
}

void Faults::done(const void* pointer, int* done, int* sizes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = held_.find(pointer);
  if (found == held_.end()) return;
  const Held& held = found->second;
  switch (held.fault->what) {
    case What::kDrop:
      found->second.over = true;
      *done = 0;
      return;
    case What::kSize:
      if (sizes != nullptr) sizes[0] += static_cast<int>(held.fault->value);
      break;
    case What::kFlip:
      static_cast<uint8_t*>(held.data)[held.fault->value] ^= 0xff;
      break;
    default:
      break;
  }
  held_.erase(found);
}

}  // namespace tap
