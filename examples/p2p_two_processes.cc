// Two processes in C++: one sends numbers to the other, which adds 1 to each and sends them back.
//
//     g++ -std=c++17 examples/p2p_two_processes.cc -o two $(tcpx-mpi config --cflags --libs)
//     ./two                                     over softtcpx
//     ./two /path/to/libnccl-net-tcpx.so        over any other plugin
//
// What joins them, here a pair of sockets, carries the connection info at the start and one byte at
// the end; all else goes through the plugin.
#include <sys/socket.h>
#include <sys/wait.h>
#include <tcpx_p2p/session.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr size_t kCount = 1'000'003;

void tell(int line, const std::string& text) {
  const uint32_t size = static_cast<uint32_t>(text.size());
  if (write(line, &size, sizeof(size)) != sizeof(size)) exit(1);
  if (write(line, text.data(), size) != static_cast<ssize_t>(size)) exit(1);
}

std::string hear(int line) {
  uint32_t size = 0;
  if (recv(line, &size, sizeof(size), MSG_WAITALL) != sizeof(size)) exit(1);
  std::string text(size, '\0');
  if (recv(line, text.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) exit(1);
  return text;
}

tcpx_p2p::Session meet(int line, const std::string& plugin) {
  tcpx_p2p::Options options;
  options.plugin = plugin;
  tcpx_p2p::Session session(/*device=*/0, /*channels=*/2, options);
  tell(line, session.listen("other"));
  session.load_remote_conn_info("other", hear(line));
  session.establish("other");
  return session;
}

// Until the other side has everything too: only then may connections be closed.
void part(int line) {
  tell(line, "done");
  hear(line);
}

int first(int line, const std::string& plugin) {
  tcpx_p2p::Session session = meet(line, plugin);
  std::vector<uint64_t> numbers(kCount);
  for (size_t i = 0; i < kCount; ++i) numbers[i] = i;
  const size_t bytes = kCount * sizeof(numbers[0]);
  const uint64_t memory = session.register_memory(numbers.data(), bytes);
  tcpx_p2p::Transfer transfer = session.create_transfer("other");
  transfer.post_send(memory, 0, bytes);
  transfer.wait();
  transfer.post_recv(memory, 0, bytes);
  transfer.wait();
  part(line);
  size_t wrong = 0;
  for (size_t i = 0; i < kCount; ++i) wrong += numbers[i] != i + 1;
  printf("%zu bytes there and back: %s\n", bytes, wrong == 0 ? "all right" : "WRONG");
  return wrong == 0 ? 0 : 5;
}

int second(int line, const std::string& plugin) {
  tcpx_p2p::Session session = meet(line, plugin);
  std::vector<uint64_t> numbers(kCount);
  const size_t bytes = kCount * sizeof(numbers[0]);
  const uint64_t memory = session.register_memory(numbers.data(), bytes);
  tcpx_p2p::Transfer transfer = session.create_transfer("other");
  transfer.post_recv(memory, 0, bytes);
  transfer.wait();
  for (uint64_t& number : numbers) ++number;
  transfer.post_send(memory, 0, bytes);
  transfer.wait();
  part(line);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string plugin = argc > 1 ? argv[1] : "softtcpx";
  int lines[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) return 1;
  const pid_t other = fork();  // before the plugin is loaded: it may have threads
  if (other < 0) return 1;
  close(lines[other == 0 ? 0 : 1]);
  try {
    if (other == 0) return second(lines[1], plugin);
    const int code = first(lines[0], plugin);
    int status = 0;
    waitpid(other, &status, 0);
    return code != 0 ? code : WEXITSTATUS(status);
  } catch (const tcpx_p2p::Error& error) {
    fprintf(stderr, "%s: %s\n", tcpx_p2p::name_of(error.status()), error.what());
    return 1;
  }
}
