// The raw peer's loop over real sockets: the engine's program and rules, on plain streams.
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "raw_rig.h"

namespace {

std::atomic<int> g_polls{0};
std::atomic<int> g_most_polled{0};
std::atomic<int> g_yields{0};

}  // namespace

// The system's own, counted.
extern "C" {
int poll(pollfd* fds, nfds_t count, int ms) {
  ++g_polls;
  if (static_cast<int>(count) > g_most_polled) g_most_polled = static_cast<int>(count);
  const timespec limit{ms / 1000, ms % 1000 * 1'000'000};
  return static_cast<int>(syscall(SYS_ppoll, fds, count, ms < 0 ? nullptr : &limit, nullptr, 0));
}
int sched_yield() {
  ++g_yields;
  return static_cast<int>(syscall(SYS_sched_yield));
}
}

using namespace tcpx;

namespace {

constexpr uint64_t kIterations = RawRank::kSlots;
constexpr uint64_t kBytes = 100'003;

void forget_calls() { g_polls = g_most_polled = g_yields = 0; }

uint64_t waiting_in(int fd) {
  int bytes = -1;
  CHECK_EQ(ioctl(fd, FIONREAD, &bytes), 0);
  return static_cast<uint64_t>(bytes);
}

// A busy kernel delivers over loopback a little later; a wait in vain is ended by ctest.
void wait_for_bytes(int fd, uint64_t bytes) {
  while (waiting_in(fd) < bytes) std::this_thread::yield();
}

}  // namespace

TEST(bytes_of_any_size_arrive_in_both_directions_and_in_every_slot) {
  for (const bool two_way : {false, true}) {
    for (const int streams : {1, 2, 4}) {
      for (const int spins : {kSpins, kSleeps}) {
        RawPair pair(on_lo(streams, two_way), spins);
        for (const uint64_t bytes :
             {uint64_t{0}, uint64_t{1}, uint64_t{17}, uint64_t{4096}, kBytes}) {
          for (const uint64_t chunk : {uint64_t{64}, uint64_t{30'000}, uint64_t{1} << 30}) {
            if (bytes == kBytes && chunk == 64) continue;
            for (RawRank& rank : pair.ranks) rank.load(Steps().receive(0).send(0), {bytes}, chunk);
            const bool well = pair.run(batch_of(kIterations));
            CHECK(well);
            if (!well) return;
            for (const RawRank& rank : pair.ranks) {
              for (uint64_t slot = 0; slot < kIterations; ++slot) {
                CHECK_EQ(rank.wrong(slot, 1 - rank.rank, 0, bytes), 0u);
              }
            }
          }
        }
      }
    }
  }
}

TEST(a_message_above_one_call_is_moved_whole) {
  RawPair pair;
  constexpr uint64_t kLarge = (uint64_t{3} << 20) + 5;
  for (RawRank& rank : pair.ranks) rank.load(Steps().receive(0).send(0), {kLarge}, kLarge);
  CHECK(pair.run(batch_of(kIterations)));
  for (const RawRank& rank : pair.ranks) {
    for (uint64_t slot = 0; slot < kIterations; ++slot) {
      CHECK_EQ(rank.wrong(slot, 1 - rank.rank, 0, kLarge), 0u);
    }
  }
}

TEST(a_batch_uses_the_slots_it_was_given_and_no_others) {
  RawPair pair(on_lo(2));
  for (RawRank& rank : pair.ranks) rank.load(Steps().receive(0).send(0), {kBytes}, 4096);
  CHECK(pair.run(batch_of(3, 5000, 2)));
  CHECK(pair.run(batch_of(1, 5000, 6)));
  for (uint64_t slot = 0; slot < kIterations; ++slot) {
    const bool used = (slot >= 2 && slot < 5) || slot == 6;
    for (const RawRank& rank : pair.ranks) {
      const uint8_t* data = rank.memory[kReceiveBuffer].data() + slot * rank.stride;
      if (used) CHECK_EQ(rank.wrong(slot, 1 - rank.rank, 0, kBytes), 0u);
      if (!used)
        CHECK_EQ(std::count(data, data + rank.stride, RawRank::kPoison),
                 static_cast<ptrdiff_t>(rank.stride));
    }
  }
}

TEST(a_step_waits_for_the_chunk_or_the_whole_that_it_needs) {
  for (const int wait : {kChunk, kWhole}) {
    for (const int streams : {1, 4}) {
      RawPair pair(on_lo(streams));
      // Rank 0 sends block 0 and gets it back as block 1; rank 1 copies it on its way.
      pair.ranks[0].load(Steps().send(0).receive(1), {kBytes, kBytes}, 3000);
      pair.ranks[1].load(Steps().receive(0).copy(0, 1, 0, wait).send(1, 1, wait), {kBytes, kBytes},
                         3000);
      CHECK(pair.run(batch_of(kIterations)));
      for (uint64_t slot = 0; slot < kIterations; ++slot) {
        const RawRank& asked = pair.ranks[0];
        const uint8_t* back = asked.memory[kReceiveBuffer].data() + slot * asked.stride + kBytes;
        const uint8_t* sent = asked.memory[kSendBuffer].data() + slot * asked.stride;
        CHECK_EQ(std::memcmp(back, sent, kBytes), 0);
        CHECK_EQ(pair.ranks[1].wrong(slot, 0, 0, kBytes), 0u);
      }
      // Its answer cannot be there before its question was whole.
      for (const RawRank& rank : pair.ranks) {
        const BatchStamps& stamps = rank.loop.stamps();
        for (uint64_t i = 0; i < kIterations; ++i) {
          CHECK_EQ(stamps.end[i], std::max(stamps.send_done[i], stamps.receive_done[i]));
          if (i > 0) CHECK_LE(stamps.end[i - 1], stamps.end[i]);
        }
      }
    }
  }
}

TEST(an_iteration_begins_when_the_one_before_is_complete) {
  RawPair pair;
  pair.ranks[0].load(Steps().send(0).receive(0), {1000}, 1000);
  CHECK(!pair.ranks[0].loop.run(batch_of(3, 50)));  // nobody answers
  CHECK_EQ(pair.ranks[0].loop.fault().kind, FaultKind::kStall);
  const int there = pair.ranks[1].links->receive_socket(0, 0, 0);
  wait_for_bytes(there, 1000);
  CHECK_EQ(waiting_in(there), 1000u);
}

TEST(a_rank_without_a_part_is_done_at_once) {
  RawPair pair;
  pair.ranks[0].load(Steps(), {1000}, 1000);
  CHECK(pair.ranks[0].loop.run(batch_of(3)));
  const BatchStamps& stamps = pair.ranks[0].loop.stamps();
  for (const int64_t end : {stamps.end[0], stamps.end[2]}) CHECK_EQ(end, stamps.start);
}

TEST(a_closed_connection_is_a_fault_with_call_and_flow) {
  for (const bool sends : {false, true}) {
    RawPair pair(on_lo(2));
    RawRank& rank = pair.ranks[0];
    const Steps one = sends ? Steps().send(0) : Steps().receive(0);
    rank.load(one, {8'000'000}, 1'000'000);
    const RawLinks& there = *pair.ranks[1].links;
    shutdown(sends ? there.receive_socket(0, 0, 1) : there.send_socket(0, 0, 1), SHUT_RDWR);
    if (sends) {  // unread data makes the kernel reset the connection
      pair.ranks[1].links.reset();
    }
    CHECK(!rank.loop.run(batch_of(2)));
    const Fault& fault = rank.loop.fault();
    CHECK_EQ(fault.kind, FaultKind::kSocket);
    CHECK_EQ(std::string(fault.call), std::string(sends ? "send" : "recv"));
    if (!sends) CHECK_EQ(fault.code, 0);
    if (sends) CHECK(fault.code == EPIPE || fault.code == ECONNRESET);
    const FlowReport& flow = rank.loop.picture()[static_cast<size_t>(fault.flow)];
    CHECK_EQ(flow.kind, sends ? FlowKind::kSend : FlowKind::kReceive);
    CHECK_EQ(flow.peer, 1);
    if (!sends) CHECK_EQ(flow.channel, 1);
    CHECK_EQ(fault.step, 0u);
    if (!sends) CHECK_EQ(fault.chunk, 1u);
    CHECK(!rank.loop.run(batch_of(1)));  // and it stays
    CHECK_EQ(rank.loop.fault().call, fault.call);
  }
}

TEST(a_stall_shows_what_every_flow_waits_for) {
  for (const int spins : {kSpins, kSleeps}) {
    RawPair pair(on_lo(1), spins);
    RawRank& rank = pair.ranks[0];
    rank.load(Steps().receive(0).send(0, 0, kWhole), {1000}, 400);
    const std::vector<uint8_t> part(600, 1);
    CHECK_EQ(send(pair.ranks[1].links->send_socket(0, 0, 0), part.data(), part.size(), 0), 600);
    wait_for_bytes(rank.links->receive_socket(1, 0, 0), part.size());
    CHECK(!rank.loop.run(batch_of(2, 60)));
    CHECK_EQ(rank.loop.fault().kind, FaultKind::kStall);
    for (const FlowReport& flow : rank.loop.picture()) {
      const bool receives = flow.kind == FlowKind::kReceive;
      CHECK_EQ(flow.peer, 1);
      CHECK(!flow.finished);
      CHECK_EQ(flow.completed, receives ? 1u : 0u);
      CHECK_EQ(flow.posted, flow.completed + (receives ? 1u : 0u));
      CHECK_EQ(flow.oldest_chunk, receives ? 1u : 0u);
      CHECK_EQ(flow.oldest_step, receives ? 0u : 1u);
      CHECK_EQ(flow.oldest_bytes, 400u);
      CHECK_EQ(flow.bytes, receives ? 400u : 0u);
      if (receives) CHECK_LE(50'000'000, flow.oldest_age_ns);
      if (!receives) CHECK_EQ(flow.oldest_age_ns, -1);
    }
  }
}

TEST(another_thread_can_end_a_batch_and_a_deadline_too) {
  for (const int spins : {kSpins, kSleeps}) {
    RawPair pair(on_lo(1), spins);
    for (RawRank& rank : pair.ranks) rank.load(Steps().receive(0).send(0), {1000}, 400);
    bool well = true;
    run_two([&] { well = pair.ranks[0].loop.run(batch_of(2, 60'000)); },
            [&] { pair.ranks[0].loop.request_stop(); });
    CHECK(!well);
    CHECK_EQ(pair.ranks[0].loop.fault().kind, FaultKind::kStopped);
    BatchPlan late = batch_of(2, 60'000);
    late.end_by_ns = now_ns() + 20'000'000;
    CHECK(!pair.ranks[1].loop.run(late));
    // Rank 0 may have left its bytes behind; an answer to what rank 1 sends there is none.
    CHECK_EQ(pair.ranks[1].loop.fault().kind, FaultKind::kTimeout);
  }
}

TEST(a_loop_without_a_core_of_its_own_sleeps_in_poll_and_one_with_it_never_does) {
  for (const int spins : {kSpins, kSleeps}) {
    RawPair pair(on_lo(2), spins);
    RawRank& rank = pair.ranks[0];
    // Two streams to receive on; the sends wait for them and are not polled for.
    rank.load(Steps().receive(0).send(0, 0, kWhole), {1000}, 400);
    forget_calls();
    CHECK(!rank.loop.run(batch_of(1, 30)));
    CHECK_EQ(g_polls > 0, spins == kSleeps);
    CHECK_EQ(g_yields > 0, spins == kSpins);
    CHECK_EQ(g_most_polled.load(), spins == kSleeps ? 2 : 0);
  }
}

CHECK_MAIN()
