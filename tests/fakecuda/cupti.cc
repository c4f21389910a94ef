// The profiler to go with the fake driver: a kernel or a copy for each that was launched while it
// was on, number N of them N us long, told in an order of its own and with records of other kinds
// between. FAKECUPTI_FAIL=KIND makes it refuse records of that kind; FAKECUPTI_LOSE=1 makes it lose
// one, FAKECUPTI_NO_TIMES=1 have no times of one. It complains where it is left on.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake.h"

extern "C" uint64_t fakecuda_calls(const char* call);

namespace {

constexpr int kRefused = 35;  // CUPTI_ERROR_INSUFFICIENT_PRIVILEGES
constexpr int kNoMore = 12;   // CUPTI_ERROR_MAX_LIMIT_REACHED
constexpr uint32_t kCopy = 1, kSet = 2, kKernel = 10;

struct Record {
  uint32_t kind;
  uint8_t about[12];
  uint64_t start, end;
};

void (*request)(uint8_t**, size_t*, size_t*);
void (*complete)(void*, uint32_t, uint8_t*, size_t, size_t);
uint64_t copies, kernels, copies_before, kernels_before;

struct LeftOn {
  ~LeftOn() {
    if (kinds != 0) fprintf(stderr, "fake CUPTI: left on\n");
  }
  uint64_t kinds = 0;
} on;

const char* call_of(uint32_t kind) { return kind == kCopy ? "cuMemcpyAsync" : "cuLaunchKernel"; }

}  // namespace

FAKECUDA_API int cuptiGetVersion(uint32_t* version) {
  *version = 130000;
  return 0;
}

FAKECUDA_API int cuptiActivityRegisterCallbacks(decltype(request) ours, decltype(complete) done) {
  request = ours;
  complete = done;
  return 0;
}

FAKECUDA_API int cuptiActivityEnable(uint32_t kind) {
  const char* const refused = getenv("FAKECUPTI_FAIL");
  if (refused != nullptr && strtoul(refused, nullptr, 10) == kind) return kRefused;
  on.kinds |= uint64_t{1} << kind;
  (kind == kCopy ? copies_before : kernels_before) = fakecuda_calls(call_of(kind));
  return 0;
}

FAKECUDA_API int cuptiActivityDisable(uint32_t kind) {
  on.kinds &= ~(uint64_t{1} << kind);
  uint64_t& count = kind == kCopy ? copies : kernels;
  count = fakecuda_calls(call_of(kind)) - (kind == kCopy ? copies_before : kernels_before);
  if (count > 0 && getenv("FAKECUPTI_LOSE") != nullptr) --count;
  return 0;
}

FAKECUDA_API int cuptiActivityFlushAll(uint32_t) {
  while (kernels + copies > 0) {
    uint8_t* buffer = nullptr;
    size_t bytes = 0, most = 0, used = 0;
    request(&buffer, &bytes, &most);
    const auto put = [&](uint32_t kind, uint64_t number) {
      const bool timed = number != 2 || getenv("FAKECUPTI_NO_TIMES") == nullptr;
      const uint64_t start = timed ? 100000 * number + kind : 0;
      const Record record{kind, {}, start, timed ? start + 1000 * number : 0};
      memcpy(buffer + used, &record, sizeof(record));
      used += sizeof(record);
    };
    while (used + 3 * sizeof(Record) <= bytes && kernels + copies > 0) {
      put(kSet, 1);
      if (kernels > 0) put(kKernel, kernels--);
      if (copies > 0) put(kCopy, copies--);
    }
    complete(nullptr, 0, buffer, bytes, used);
  }
  return 0;
}

FAKECUDA_API int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  uint8_t* next = *record == nullptr ? buffer : *record + sizeof(Record);
  if (next + sizeof(Record) > buffer + valid) return kNoMore;
  *record = next;
  return 0;
}
