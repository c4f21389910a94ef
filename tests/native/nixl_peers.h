// Who comes to an agent's port in the tests: processes with an agent, strangers, and peers that
// know the protocol and do as they like.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "library/nixl/stream.h"
#include "library/nixl/wire.h"
#include "nixl_agent.h"
#include "tcpx_p2p/session.h"

namespace stand_in {

constexpr uint64_t kMiB = 1 << 20;

inline void have_descriptors(rlim_t most) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

inline size_t descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;
}

inline uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream file("/proc/self/statm");
  file >> pages >> pages;
  return pages * 4096;
}

template <typename Condition>
bool comes(const Condition& condition) {
  const int64_t deadline = tcpx::now_ns() + kDeadlineNs;
  while (!condition()) {
    if (tcpx::now_ns() > deadline) return false;
    sched_yield();
  }
  return true;
}

// A connection to an agent's port, which waits for nothing.
inline Socket dial(const std::string& info) {
  Socket stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(read_connection_info(info).port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(connect(stranger.fd(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return stranger;
}

// A process with agent "b", which has few descriptors, memory, and answers what it is asked. The
// plugin is in one process once, and RawPeer brings its own.
struct Child {
  explicit Child(const Params& params = {}) {
    int there[2], back[2];
    CHECK_EQ(pipe(there), 0);
    CHECK_EQ(pipe(back), 0);
    pid = fork();
    if (pid == 0) {
      close(there[1]), close(back[0]);
      serve(there[0], back[1], params);
    }
    close(there[0]), close(back[1]);
    ask_ = there[1];
    hear_ = back[0];
    info = hear();
    blob = hear();
    address = reinterpret_cast<const uint8_t*>(read_region_info(blob).address);
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    close(ask_), close(hear_);
  }
  // What it has open (o), or may open beside that (m); the MiB that it has resident (r); whether an
  // honest agent, of the same process, writes to b (w); notes of that one that are fetched (f).
  size_t ask(char what) {
    CHECK_EQ(write(ask_, &what, 1), 1);
    return std::stoul(hear());
  }
  pid_t pid;
  std::string info, blob;
  const uint8_t* address;

 private:
  [[noreturn]] static void serve(int from, int to, const Params& params) {
    have_descriptors(256);
    Agent b("b", true, params);
    Bytes memory(b, kMiB, 3);
    const auto say = [&](const std::string& text) {
      const uint64_t length = text.size();
      if (write(to, &length, sizeof(length)) < 0 || write(to, text.data(), length) < 0) _exit(1);
    };
    say(b.info());
    say(memory.blob());
    for (char what; read(from, &what, 1) == 1;) {
      say(std::to_string(answer(what, b, memory)));
    }
    _exit(0);
  }
  static size_t answer(char what, Agent& b, Bytes& memory);
  std::string hear() {
    uint64_t length = 0;
    CHECK_EQ(read(hear_, &length, sizeof(length)), ssize_t{sizeof(length)});
    std::string text(length, '\0');
    CHECK_EQ(read(hear_, text.data(), length), static_cast<ssize_t>(length));
    return text;
  }
  int ask_, hear_;
};

// One that has b's metadata and knows the protocol, and does as it likes.
class RawPeer {
 public:
  explicit RawPeer(const std::string& info, const std::string& name = "raw",
                   const std::string& target = "b", const char* gone_plugin = nullptr)
      : info_(read_connection_info(info)), socket_(dial(info)) {
    Frame frame = next();
    CHECK(frame.type == FrameType::kChallenge);
    const tcpx::Token challenge = read_challenge(frame.body);
    tcpx_p2p::Options options;
    options.plugin = gone_plugin != nullptr ? gone_plugin : SOFTTCPX_PLUGIN;
    options.chunk_bytes = info_.terms.chunk_bytes;
    session_.emplace(0, info_.terms.channels, options);
    Greeting hello;
    hello.terms = info_.terms;
    hello.sender = name;
    hello.target = target;
    hello.path_info = session_->listen("b");
    if (gone_plugin != nullptr) session_->close();
    CHECK(tcpx::random_token(&hello.attempt) && tcpx::random_token(&hello.engine));
    std::string out;
    write_proven(out, FrameType::kHello, hello, info_.token, challenge);
    send(out);
    frame = next();
    if (frame.type == FrameType::kRefuse) {
      refusal = std::string(frame.body);
      return;
    }
    const auto welcome = read_proven(frame, info_.token, challenge);
    CHECK(welcome.has_value());
    session_->load_remote_conn_info("b", welcome->path_info);
    CHECK(comes([&] { return session_->progress(), session_->connects_begun("b"); }));
    out.clear();
    write_begun(out);
    send(out);
    session_->establish("b", 20);
    out.clear();
    write_up(out);
    send(out);
    while (next().type != FrameType::kUp) {
    }
  }

  // False: the other side has closed the connection, or takes no more.
  bool send(const std::string& bytes, int patience_ms = 10'000) {
    for (size_t at = 0; at < bytes.size();) {
      pollfd ready{socket_.fd(), POLLOUT, 0};
      if (poll(&ready, 1, patience_ms) <= 0) return false;
      const ssize_t sent =
          ::send(socket_.fd(), bytes.data() + at, bytes.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      at += std::max<ssize_t>(sent, 0);
    }
    return true;
  }
  bool is_closed() {
    char byte;
    const ssize_t got = recv(socket_.fd(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  std::string refusal;

 private:
  Frame next() {
    Frame frame{FrameType::kRefuse, "closed"};
    while (!reader_.next(frame)) {
      const ssize_t got = recv(socket_.fd(), reader_.room(4096), 4096, 0);
      if (got <= 0) return frame;
      reader_.filled(got);
    }
    return frame;
  }
  const ConnectionInfo info_;
  Socket socket_;
  FrameReader reader_;
  std::optional<tcpx_p2p::Session> session_;
};

inline Status writes(Agent& a, const std::string& name, const uint8_t* there,
                     const std::string& blob, uint64_t bytes, const char* note = nullptr) {
  Bytes here(a, bytes, 1);
  Known known(a, name, blob);
  Xfer out(a, kWrite, here, {{0, bytes}}, name, there, known.metadata, {{0, bytes}});
  return out.run(note);
}

inline size_t Child::answer(char what, Agent& b, Bytes& memory) {
  if (what == 'o') return descriptors();
  if (what == 'r') return resident_bytes() / kMiB;
  if (what == 'w') {
    static Agent* a = new Agent("a");
    CHECK_EQ(a->load(b), kSuccess);
    return writes(*a, "b", memory.data.data(), memory.blob(), kMiB, "mine") == kSuccess ? 1 : 0;
  }
  if (what == 'f') {
    const Notifications notes = b.fetch();
    return std::count_if(notes.begin(), notes.end(),
                         [](const auto& each) { return each.second == "mine"; });
  }
  std::vector<Socket> opened;
  while (opened.empty() || opened.back().fd() >= 0) {
    opened.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  return opened.size() - 1;
}

// What is said on stderr meanwhile.
class Stderr {
 public:
  Stderr() : before_(dup(STDERR_FILENO)) {
    FILE* file = tmpfile();
    file_ = dup(fileno(file));
    fclose(file);
    dup2(file_, STDERR_FILENO);
  }
  ~Stderr() {
    dup2(before_, STDERR_FILENO);
    close(before_), close(file_);
  }
  std::string text() const {
    std::string all(1 << 20, '\0');
    all.resize(std::max<ssize_t>(pread(file_, all.data(), all.size(), 0), 0));
    return all;
  }

 private:
  int before_, file_;
};

}  // namespace stand_in
