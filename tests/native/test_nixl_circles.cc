// Agents that ask each other in a circle, over a plugin whose accept blocks until its peer has
// connected (tests/refplugin/blocking.cc): nobody may be in an accept that waits for who is in one.
#include <stdlib.h>
#include <sys/wait.h>

#include "library/nixl/wire.h"
#include "nixl_agent.h"

using namespace stand_in;

namespace {

constexpr uint64_t kSize = (3 << 20) + 5;

Params over(const char* plugin) { return {{"plugin", plugin}}; }

// Each writes to the next one and reads it back; one thread is all of them.
void circle_in_one_thread(const char* plugin, size_t count) {
  std::vector<std::unique_ptr<Agent>> agents;
  std::vector<std::unique_ptr<Bytes>> from, to, back;
  for (size_t i = 0; i < count; ++i) {
    agents.push_back(std::make_unique<Agent>(std::string(1, 'a' + i), false, over(plugin)));
    from.push_back(std::make_unique<Bytes>(*agents[i], kSize, 1 + i));
    to.push_back(std::make_unique<Bytes>(*agents[i], kSize));
    back.push_back(std::make_unique<Bytes>(*agents[i], kSize));
  }
  std::vector<std::unique_ptr<Known>> known;
  std::vector<Agent*> all;
  for (size_t i = 0; i < count; ++i) {
    Agent& next = *agents[(i + 1) % count];
    CHECK_EQ(agents[i]->load(next), kSuccess);
    known.push_back(std::make_unique<Known>(*agents[i], next, *to[(i + 1) % count]));
    all.push_back(agents[i].get());
  }
  for (const Operation operation : {kWrite, kRead}) {
    std::vector<std::unique_ptr<Xfer>> moves;
    for (size_t i = 0; i < count; ++i) {
      const size_t next = (i + 1) % count;
      moves.push_back(std::make_unique<Xfer>(
          *agents[i], operation, operation == kWrite ? *from[i] : *back[i],
          std::vector<Block>{{0, kSize}}, agents[next]->name, to[next]->data.data(),
          known[i]->metadata, std::vector<Block>{{0, kSize}}));
      CHECK_EQ(moves[i]->post(), kInProgress);
    }
    for (const auto& move : moves) CHECK_EQ(move->wait(all), kSuccess);
  }
  for (size_t i = 0; i < count; ++i) {
    CHECK(to[(i + 1) % count]->data == from[i]->data);
    CHECK(back[i]->data == from[i]->data);
  }
}

// One of several processes, and what it says and is told.
struct Process {
  pid_t pid;
  int to, from;
};

void say(int to, const std::string& text) {
  const uint64_t length = text.size();
  if (write(to, &length, sizeof(length)) < 0 || write(to, text.data(), length) < 0) _exit(3);
}

std::string hear(int from) {
  uint64_t length = 0;
  if (read(from, &length, sizeof(length)) != sizeof(length)) _exit(4);
  std::string text(length, '\0');
  if (read(from, text.data(), length) != static_cast<ssize_t>(length)) _exit(5);
  return text;
}

// Tells of itself, hears of the next one, moves bytes with that, and goes when it is told to.
int one_of_a_circle(const char* plugin, const std::string& name, int from, int to) {
  Agent agent(name, true, over(plugin));
  Bytes out(agent, kSize, 3), in(agent, kSize), back(agent, kSize);
  say(to, agent.info());
  say(to, in.blob());
  const std::string next = hear(from), info = hear(from), blob = hear(from);
  CHECK_EQ(agent.backend->load_connection_info(next, info), kSuccess);
  const Known known(agent, next, blob);
  const auto* there = reinterpret_cast<const uint8_t*>(read_region_info(blob).address);
  const std::vector<Block> whole{{0, kSize}};
  Xfer write(agent, kWrite, out, whole, next, there, known.metadata, whole);
  CHECK_EQ(write.run("written"), kSuccess);
  Xfer read(agent, kRead, back, whole, next, there, known.metadata, whole);
  CHECK_EQ(read.run(), kSuccess);
  CHECK(back.data == out.data);
  CHECK_EQ(wait_for_note(agent)[0].second, "written");
  CHECK(in.data == out.data);  // all of them have the same
  say(to, "done");
  hear(from);
  return check::failures() == 0 ? 0 : 1;
}

void circle_of_processes(const char* plugin, size_t count) {
  std::vector<Process> circle;
  for (size_t i = 0; i < count; ++i) {
    int there[2], here[2];
    CHECK_EQ(pipe(there), 0);
    CHECK_EQ(pipe(here), 0);
    const pid_t pid = fork();
    if (pid == 0) _exit(one_of_a_circle(plugin, std::string(1, 'a' + i), there[0], here[1]));
    circle.push_back({pid, there[1], here[0]});
  }
  std::vector<std::string> infos, blobs;
  for (const Process& one : circle) {
    infos.push_back(hear(one.from));
    blobs.push_back(hear(one.from));
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t next = (i + 1) % count;
    for (const std::string& text : {std::string(1, 'a' + next), infos[next], blobs[next]}) {
      say(circle[i].to, text);
    }
  }
  for (const Process& one : circle) CHECK_EQ(hear(one.from), "done");
  for (const Process& one : circle) say(one.to, "go");
  for (const Process& one : circle) {
    int ended = -1;
    waitpid(one.pid, &ended, 0);
    CHECK_EQ(ended, 0);
  }
}

}  // namespace

TEST(two_agents_of_one_thread_that_ask_each_other_come_up_over_v6) {
  circle_in_one_thread(BLOCKING_V6, 2);
}

TEST(three_agents_of_one_thread_come_up_around_a_circle_over_v6) {
  circle_in_one_thread(BLOCKING_V6, 3);
}

TEST(three_agents_of_one_thread_come_up_around_a_circle_over_v9) {
  circle_in_one_thread(BLOCKING_V9, 3);
}

TEST(a_connect_of_two_calls_is_begun_before_anybody_accepts) {
  setenv("BLOCKING_CONNECTS", "2", 1);
  circle_in_one_thread(BLOCKING_V9, 3);
}

TEST(two_processes_that_ask_each_other_come_up_over_v9) { circle_of_processes(BLOCKING_V9, 2); }

TEST(three_processes_come_up_around_a_circle_over_v6) { circle_of_processes(BLOCKING_V6, 3); }

TEST(three_processes_come_up_around_a_circle_over_v9) { circle_of_processes(BLOCKING_V9, 3); }

CHECK_MAIN()
