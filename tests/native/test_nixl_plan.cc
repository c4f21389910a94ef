// How a request becomes messages.
#include <numeric>

#include "check.h"
#include "library/nixl/plan.h"

using namespace tcpx::nixl;

namespace {

std::vector<Message> plan_of(const std::vector<uint64_t>& bytes, StageRule rule = {100, 256}) {
  return plan(bytes.size(), rule, [&](size_t i) { return bytes[i]; });
}

}  // namespace

TEST(what_lies_together_on_both_sides_becomes_one) {
  const auto joined = coalesce({{1, 0, 9, 50, 10}, {1, 10, 9, 60, 5}, {1, 15, 9, 65, 0}});
  CHECK_EQ(joined.size(), 1u);
  CHECK_EQ(joined[0].bytes, 15u);
}

TEST(what_lies_together_on_one_side_alone_stays_two) {
  CHECK_EQ(coalesce({{1, 0, 9, 50, 10}, {1, 10, 9, 70, 5}}).size(), 2u);
  CHECK_EQ(coalesce({{1, 0, 9, 50, 10}, {1, 20, 9, 60, 5}}).size(), 2u);
  CHECK_EQ(coalesce({{1, 0, 9, 50, 10}, {2, 10, 9, 60, 5}}).size(), 2u);
  CHECK_EQ(coalesce({{1, 0, 9, 50, 10}, {1, 10, 8, 60, 5}}).size(), 2u);
}

TEST(small_segments_are_gathered_up_to_the_bound) {
  const auto messages = plan_of({90, 90, 90, 90, 90});
  CHECK_EQ(messages.size(), 3u);
  CHECK_EQ(messages[0].bytes, 180u);
  CHECK(messages[0].staged);
  CHECK_EQ(messages[1].count, 2u);
  CHECK_EQ(messages[2].count, 1u);
  CHECK(!messages[2].staged);
}

TEST(large_segments_travel_alone_and_end_a_gathering) {
  const auto messages = plan_of({10, 10, 100, 10, 10});
  CHECK_EQ(messages.size(), 3u);
  CHECK_EQ(messages[1].first, 2u);
  CHECK(!messages[1].staged);
  CHECK(messages[2].staged);
}

TEST(without_a_bound_every_segment_is_a_message) {
  CHECK_EQ(plan_of({1, 1, 1}, {0, 256}).size(), 3u);
}

TEST(a_long_segment_is_cut) {
  const auto messages = plan_of({10, 2 * kMostMessage + 3, 10, kMostMessage});
  CHECK_EQ(messages.size(), 6u);
  for (size_t i = 0; i < 3; ++i) {
    CHECK_EQ(messages[1 + i].first, 1u);
    CHECK_EQ(messages[1 + i].offset, i * kMostMessage);
    CHECK_EQ(messages[1 + i].bytes, i < 2 ? kMostMessage : 3);
  }
  CHECK_EQ(messages[4].first, 2u);
  CHECK_EQ(messages[4].offset, 0u);
  CHECK_EQ(messages[5].bytes, kMostMessage);
}

TEST(no_byte_is_lost_whatever_the_sizes) {
  std::vector<uint64_t> bytes;
  for (uint64_t i = 0; i < 1000; ++i) bytes.push_back(1 + i * 7919 % 130);
  size_t next = 0;
  for (const Message& message : plan_of(bytes)) {
    CHECK_EQ(message.first, next);
    const auto from = bytes.begin() + next;
    CHECK_EQ(std::accumulate(from, from + message.count, uint64_t{0}), message.bytes);
    CHECK(message.bytes <= 256);
    next += message.count;
  }
  CHECK_EQ(next, bytes.size());
}

CHECK_MAIN()
