// Two agents of this process over softtcpx, through the table that NIXL calls; every byte checked.
#include <thread>

#include "nixl_agent.h"

using namespace stand_in;

namespace {

constexpr uint64_t kMiB = 1 << 20;

struct Two {
  explicit Two(bool threads = true, Params params = {})
      : a("a", threads, params), b("b", threads, params) {
    CHECK_EQ(a.load(b), kSuccess);
    CHECK_EQ(b.load(a), kSuccess);
  }
  Agent a, b;
};

// Every other `bytes`.
std::vector<Block> striped(size_t count, uint64_t bytes, uint64_t stride) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < count; ++i) blocks.push_back({i * stride, bytes});
  return blocks;
}

// What a write of `blocks` makes of memory full of 0.
std::vector<uint8_t> written(const Bytes& from, size_t size, const std::vector<Block>& blocks) {
  std::vector<uint8_t> result(size);
  for (const Block& block : blocks) {
    memcpy(result.data() + block.at, from.data.data() + block.at, block.bytes);
  }
  return result;
}

void write_and_read(Two& two, uint64_t size, const std::vector<Block>& blocks) {
  const std::vector<Agent*> both{&two.b};
  Bytes from(two.a, size, 7), to(two.b, size), back(two.a, size);
  Known known(two.a, two.b, to);
  Xfer out(two.a, kWrite, from, blocks, "b", to.data.data(), known.metadata, blocks);
  CHECK_EQ(out.prepared, kSuccess);
  CHECK_EQ(out.run("written", both), kSuccess);
  const Notifications notes = out.notes.empty() ? wait_for_note(two.b) : out.notes;
  CHECK_EQ(notes[0].first, "a");
  CHECK_EQ(notes[0].second, "written");
  CHECK(to.data == written(from, size, blocks));
  Xfer in(two.a, kRead, back, blocks, "b", to.data.data(), known.metadata, blocks);
  CHECK_EQ(in.run(nullptr, both), kSuccess);
  CHECK(back.data == to.data);
}

}  // namespace

TEST(bytes_of_every_kind_of_size_are_written_and_read) {
  Two two;
  for (const uint64_t size :
       {uint64_t{1}, uint64_t{4096}, 33 * 1024 + uint64_t{1}, 3 * kMiB + 5, 64 * kMiB + 7}) {
    write_and_read(two, size, {{0, size}});
  }
}

TEST(thousands_of_small_blocks_are_written_and_read) {
  Two two;
  write_and_read(two, 1000 * 8192, striped(1000, 4096, 8192));
}

TEST(more_segments_than_one_frame_takes_are_written_and_read) {
  Two two;
  write_and_read(two, 40'000 * 8, striped(40'000, 5, 8));
}

TEST(large_and_small_blocks_may_be_mixed) {
  Two two;
  write_and_read(two, 2 * kMiB,
                 {{0, 100}, {200, 100}, {1000, kMiB}, {kMiB + 2000, 7}, {kMiB + 3000, 40'000}});
}

TEST(agents_without_a_progress_thread_drive_themselves) {
  Two two(false);
  write_and_read(two, 2 * kMiB, {{0, 2 * kMiB}});
  write_and_read(two, 100, {{0, 100}});
}

TEST(a_request_is_posted_again_and_again_with_other_bytes_and_notifications) {
  Two two;
  Bytes from(two.a, kMiB), to(two.b, kMiB);
  Known known(two.a, two.b, to);
  Xfer out(two.a, kWrite, from, {{0, kMiB}}, "b", to.data.data(), known.metadata, {{0, kMiB}});
  for (int round = 1; round <= 5; ++round) {
    std::fill(from.data.begin(), from.data.end(), static_cast<uint8_t>(round));
    CHECK_EQ(out.run(round == 3 ? nullptr : std::to_string(round).c_str()), kSuccess);
    CHECK(to.data == from.data);
    if (round != 3) CHECK_EQ(wait_for_note(two.b)[0].second, std::to_string(round));
  }
}

TEST(a_request_that_is_under_way_is_not_posted_again) {
  Two two(false);
  Bytes from(two.a, kMiB), to(two.b, kMiB);
  Known known(two.a, two.b, to);
  Xfer out(two.a, kWrite, from, {{0, kMiB}}, "b", to.data.data(), known.metadata, {{0, kMiB}});
  CHECK_EQ(out.post(), kInProgress);
  CHECK_EQ(out.post(), kRepostActive);
  CHECK_EQ(out.wait({&two.b}), kSuccess);
}

TEST(a_notification_is_seen_when_all_bytes_are_in_place_and_not_before) {
  Two two;
  const auto blocks = striped(64, 40'000, 65'536);
  Bytes from(two.a, 4 * kMiB), to(two.b, 4 * kMiB);
  Known known(two.a, two.b, to);
  Xfer out(two.a, kWrite, from, blocks, "b", to.data.data(), known.metadata, blocks);
  for (int round = 1; round <= 10; ++round) {
    std::fill(from.data.begin(), from.data.end(), static_cast<uint8_t>(round));
    out.post("all is there");
    wait_for_note(two.b);
    CHECK(to.data == written(from, 4 * kMiB, blocks));
    CHECK_EQ(out.wait(), kSuccess);
  }
}

TEST(notifications_alone_and_of_reads_arrive_with_the_senders_name) {
  Two two;
  CHECK_EQ(two.b.backend->notify("a", std::string("with\0zero", 9)), kSuccess);
  const Notifications got = wait_for_note(two.a);
  CHECK_EQ(got[0].first, "b");
  CHECK_EQ(got[0].second, std::string("with\0zero", 9));
  Bytes to(two.a, kMiB), from(two.b, kMiB, 3);
  Known known(two.a, two.b, from);
  Xfer in(two.a, kRead, to, {{0, kMiB}}, "b", from.data.data(), known.metadata, {{0, kMiB}});
  CHECK_EQ(in.run("taken"), kSuccess);
  CHECK(to.data == from.data);
  CHECK_EQ(wait_for_note(two.b)[0].second, "taken");
}

TEST(a_write_to_oneself_is_a_copy) {
  Agent a("a");
  CHECK_EQ(a.backend->connect("a"), kSuccess);
  for (const uint64_t size : {uint64_t{1000}, 20 * kMiB}) {
    Bytes from(a, size, 5), to(a, size);
    Metadata* known = nullptr;
    CHECK_EQ(a.backend->load_local_metadata(to.local, known), kSuccess);
    const std::vector<Block> blocks{{0, size / 4}, {size / 2, size / 2}};
    Xfer out(a, kWrite, from, blocks, "a", to.data.data(), known, blocks);
    CHECK_EQ(out.run("copied"), kSuccess);
    CHECK(to.data == written(from, size, blocks));
    CHECK_EQ(wait_for_note(a)[0].first, "a");
    a.backend->unload_metadata(known);
  }
}

TEST(what_fits_no_frame_with_its_notification_travels_otherwise) {
  Two two(true, {{"inline_bytes", std::to_string(kMiB)}});
  Bytes from(two.a, kMiB, 3), to(two.b, kMiB);
  Known known(two.a, two.b, to);
  Xfer out(two.a, kWrite, from, {{0, kMiB}}, "b", to.data.data(), known.metadata, {{0, kMiB}});
  const std::string note(kMiB, 'x');
  CHECK_EQ(out.run(note.c_str()), kSuccess);
  CHECK(to.data == from.data);
  CHECK(wait_for_note(two.b)[0].second == note);
}

TEST(answers_that_nobody_takes_wait_and_come_when_they_are_taken) {
  Two two(false);
  constexpr size_t kReads = 1000, kBytes = 32 << 10;
  Bytes from(two.b, kBytes, 3), to(two.a, kReads * kBytes);
  Known known(two.a, two.b, from);
  std::vector<std::unique_ptr<Xfer>> reads;
  for (size_t i = 0; i < kReads; ++i) {
    reads.push_back(
        std::make_unique<Xfer>(two.a, kRead, to, std::vector<Block>{{i * kBytes, kBytes}}, "b",
                               from.data.data(), known.metadata, std::vector<Block>{{0, kBytes}}));
    CHECK_EQ(reads[i]->prepared, kSuccess);
  }
  CHECK_EQ(reads[0]->run(nullptr, {&two.b}), kSuccess);  // the connection is there
  for (size_t i = 1; i < kReads; ++i) CHECK_EQ(reads[i]->post(), kInProgress);
  for (int round = 0; round < 200; ++round) two.b.fetch();  // it answers, and nobody reads
  for (size_t i = 1; i < kReads; ++i) CHECK_EQ(reads[i]->wait({&two.b}), kSuccess);
  for (size_t i = 0; i < kReads; ++i) {
    CHECK(memcmp(to.data.data() + i * kBytes, from.data.data(), kBytes) == 0);
  }
}

TEST(a_process_that_forks_keeps_its_connections) {
  Two two;
  write_and_read(two, 3 * kMiB, {{0, 3 * kMiB}});
  const pid_t child = fork();
  if (child == 0) {  // as a child does that ends by the end of its main
    two.a.backend.reset();
    two.b.backend.reset();
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  write_and_read(two, 3 * kMiB, {{0, 3 * kMiB}});
}

TEST(several_threads_post_at_the_same_time) {
  Two two;
  constexpr int kThreads = 4;
  std::vector<std::unique_ptr<Bytes>> from, to;
  for (int i = 0; i < kThreads; ++i) {
    from.push_back(std::make_unique<Bytes>(two.a, 300'000, static_cast<uint8_t>(i + 1)));
    to.push_back(std::make_unique<Bytes>(two.b, 300'000));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Known known(two.a, two.b, *to[i]);
      for (const uint64_t bytes : {uint64_t{300'000}, uint64_t{999}, uint64_t{70'000}}) {
        Xfer out(two.a, kWrite, *from[i], {{0, bytes}}, "b", to[i]->data.data(), known.metadata,
                 {{0, bytes}});
        CHECK_EQ(out.run("x"), kSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) CHECK(to[i]->data == from[i]->data);
}

TEST(a_small_read_that_was_released_touches_its_memory_no_more) {
  Two two(false);
  Bytes from(two.b, 100, 3), to(two.a, 100), others(two.a, 100);
  Known known(two.a, two.b, from);
  const std::vector<Block> all{{0, 100}};
  Xfer other(two.a, kRead, others, all, "b", from.data.data(), known.metadata, all);
  CHECK_EQ(other.run(nullptr, {&two.b}), kSuccess);  // the connection is there
  Xfer in(two.a, kRead, to, all, "b", from.data.data(), known.metadata, all);
  CHECK_EQ(in.post(), kInProgress);
  CHECK_EQ(in.release(), kSuccess);
  CHECK_EQ(other.run(nullptr, {&two.b}), kSuccess);  // the answers come in order
  CHECK(to.data == std::vector<uint8_t>(100));
}

TEST(a_request_may_be_released_in_flight_and_its_memory_let_go) {
  Two two;
  Bytes to(two.b, 8 * kMiB);
  Known known(two.a, two.b, to);
  Bytes others(two.a, kMiB, 3), others_to(two.b, kMiB);
  Known others_known(two.a, two.b, others_to);
  Xfer other(two.a, kWrite, others, {{0, kMiB}}, "b", others_to.data.data(), others_known.metadata,
             {{0, kMiB}});
  for (const Operation operation : {kWrite, kRead}) {
    for (int round = 0; round < 5; ++round) {
      Bytes here(two.a, 8 * kMiB, 9);
      Xfer out(two.a, operation, here, {{0, 8 * kMiB}}, "b", to.data.data(), known.metadata,
               {{0, 8 * kMiB}});
      out.post();
      other.post();
      CHECK_EQ(out.release(), kSuccess);
      CHECK_EQ(here.let_go(), kSuccess);
      CHECK_EQ(other.wait(), kSuccess);  // to let go is to wait, not to end what others do
    }
  }
  Bytes from(two.a, 8 * kMiB, 11);
  Xfer out(two.a, kWrite, from, {{0, 8 * kMiB}}, "b", to.data.data(), known.metadata,
           {{0, 8 * kMiB}});
  CHECK_EQ(out.run(), kSuccess);
  CHECK(to.data == from.data);
}

CHECK_MAIN()
