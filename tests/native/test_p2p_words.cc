// What the library of sessions says of a fault and of a stall, in one line.
#include "check.h"
#include "library/words.h"

using namespace tcpx_p2p;
using tcpx::FaultKind;
using tcpx::FlowKind;

namespace {

tcpx::TransferFault fault(FaultKind kind, int code) {
  tcpx::TransferFault found;
  found.kind = kind;
  found.call = "test";
  found.code = code;
  found.direction = FlowKind::kReceive;
  found.channel = 1;
  found.chunk = 2;
  found.bytes = 16384;
  found.transfer = 3;
  found.message = 4;
  return found;
}

tcpx::TransferPicture receive(uint64_t transfer, int64_t age_ns) {
  tcpx::TransferPicture flow;
  flow.kind = FlowKind::kReceive;
  flow.window = 16;
  flow.posted = 5;
  flow.arrived = flow.completed = 1;
  flow.bytes = 10;
  flow.oldest_transfer = transfer;
  flow.oldest_chunk = 1;
  flow.oldest_bytes = 1024;
  flow.oldest_age_ns = age_ns;
  return flow;
}

}  // namespace

TEST(sizes_have_at_most_two_decimals) {
  CHECK_EQ(size_text(0), "0 B");
  CHECK_EQ(size_text(1023), "1023 B");
  CHECK_EQ(size_text(1024), "1 KiB");
  CHECK_EQ(size_text(1536 << 10), "1.5 MiB");
  CHECK_EQ(size_text(uint64_t{10} << 30), "10 GiB");
  CHECK_EQ(size_text(uint64_t{5} << 40), "5 TiB");
}

TEST(a_call_that_says_that_the_other_side_is_gone_is_a_lost_remote) {
  const std::string where = "transfer 3: receive message 4, channel 1, chunk 2 (16 KiB): ";
  for (const int code : {2, 6}) {
    CHECK(status_of(fault(FaultKind::kPlugin, code)) == Status::kRemoteLost);
  }
  CHECK_EQ(text_of(fault(FaultKind::kPlugin, 6)),
           where +
               "plugin call test returned 6 (remote error): the peer is gone, or its "
               "connection is");
  for (const int code : {-1, 3}) {
    CHECK(status_of(fault(FaultKind::kPlugin, code)) == Status::kPluginFailed);
  }
}

TEST(a_size_that_differs_and_fragments_beyond_the_end_are_told_apart) {
  CHECK(status_of(fault(FaultKind::kSize, 24)) == Status::kWrongBytes);
  CHECK_EQ(text_of(fault(FaultKind::kSize, 24)),
           "transfer 3: receive message 4, channel 1, chunk 2 (16 KiB): the plugin reports 24 B: "
           "the peer's message has another size");
  CHECK_EQ(text_of(fault(FaultKind::kSize, 16384)),
           "transfer 3: receive message 4, channel 1, chunk 2 (16 KiB): the plugin lists fragments "
           "of 16 KiB beyond its end");
}

TEST(a_stall_names_the_oldest_request_of_its_transfer_before_that_of_others) {
  const std::vector<tcpx::TransferPicture> flows = {receive(1, 9'000'000'000),
                                                    receive(7, 1'000'000'000)};
  CHECK_EQ(stall_text(7, 0.05, flows, ""),
           "transfer 7: no progress for 0.05 s; receive, channel 0: window 4/16, oldest: transfer "
           "7, message 0, chunk 1, 1 KiB, posted 1.0 s ago; 10 B moved");
  CHECK(stall_text(8, 2, flows, "").find("oldest: transfer 1,") != std::string::npos);
  CHECK_EQ(stall_text(7, 2, {receive(7, -1)}, "; the plugin said: no"),
           "transfer 7: no progress for 2 s; nothing is posted, the plugin takes no request; the "
           "plugin said: no");
}

TEST(a_stall_of_receives_that_wait_for_the_gpu_says_so) {
  tcpx::TransferPicture flow = receive(7, 1'000'000'000);
  flow.arrived = 4;
  const std::string text = stall_text(7, 2, {flow}, "");
  CHECK(text.find("no progress for 2 s; 3 receives have arrived and wait for this session's GPU; "
                  "receive") != std::string::npos);
}

CHECK_MAIN()
