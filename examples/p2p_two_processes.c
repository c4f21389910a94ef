/* Two processes in C: one sends numbers to the other, which adds 1 to each and sends them back.
 *
 *     cc examples/p2p_two_processes.c -o two $(tcpx-mpi config --cflags --libs)
 *     ./two                                     over softtcpx
 *     ./two /path/to/libnccl-net-tcpx.so        over any other plugin
 *
 * What joins them, here a pair of sockets, carries the connection info at the start and one byte at
 * the end; all else goes through the plugin. */
#define _POSIX_C_SOURCE 200809L

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tcpx_p2p.h>
#include <unistd.h>

enum { COUNT = 1000003, MOST_INFO = 1 << 14 };

static uint64_t numbers[COUNT];

/* The status's name and what the library says of it, and the end. */
static void require(tcpx_p2p_status status) {
  if (status == TCPX_P2P_OK) return;
  fprintf(stderr, "%s: %s\n", tcpx_p2p_status_name(status), tcpx_p2p_last_error());
  exit(1);
}

static void tell(int line, const void* text, size_t bytes) {
  if (write(line, &bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes)) exit(1);
  if (write(line, text, bytes) != (ssize_t)bytes) exit(1);
}

static size_t hear(int line, void* text, size_t room) {
  size_t bytes = 0;
  if (recv(line, &bytes, sizeof(bytes), MSG_WAITALL) != (ssize_t)sizeof(bytes)) exit(1);
  if (bytes > room || recv(line, text, bytes, MSG_WAITALL) != (ssize_t)bytes) exit(1);
  return bytes;
}

static tcpx_p2p_session* meet(int line, const char* plugin) {
  static char info[MOST_INFO];
  size_t bytes = sizeof(info);
  tcpx_p2p_options options;
  tcpx_p2p_session* session = NULL;
  require(tcpx_p2p_options_init(&options, sizeof(options)));
  options.plugin = plugin;
  require(tcpx_p2p_session_open(0, 2, &options, &session)); /* device 0, 2 channels */
  require(tcpx_p2p_listen(session, "other", info, &bytes));
  tell(line, info, bytes);
  bytes = hear(line, info, sizeof(info));
  require(tcpx_p2p_load_remote_conn_info(session, "other", info, bytes));
  require(tcpx_p2p_establish(session, "other", -1));
  return session;
}

/* Until the other side has everything too: only then may connections be closed. */
static void part(int line) {
  char done = 1;
  tell(line, &done, 1);
  hear(line, &done, 1);
}

static int run(int line, const char* plugin, int is_first) {
  tcpx_p2p_session* session = meet(line, plugin);
  tcpx_p2p_transfer* transfer = NULL;
  uint64_t memory = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < COUNT; ++i) numbers[i] = is_first ? i : 0;
  require(
      tcpx_p2p_register_memory(session, numbers, sizeof(numbers), TCPX_P2P_MEMORY_HOST, &memory));
  require(tcpx_p2p_create_transfer(session, "other", &transfer));
  if (is_first) {
    require(tcpx_p2p_post_send(transfer, memory, 0, sizeof(numbers)));
    require(tcpx_p2p_wait(transfer, -1));
  }
  require(tcpx_p2p_post_recv(transfer, memory, 0, sizeof(numbers)));
  require(tcpx_p2p_wait(transfer, -1));
  if (!is_first) {
    for (size_t i = 0; i < COUNT; ++i) ++numbers[i];
    require(tcpx_p2p_post_send(transfer, memory, 0, sizeof(numbers)));
    require(tcpx_p2p_wait(transfer, -1));
  }
  part(line);
  for (size_t i = 0; i < COUNT; ++i) wrong += numbers[i] != i + 1;
  if (is_first) {
    printf("%zu bytes there and back: %s\n", sizeof(numbers), wrong == 0 ? "all right" : "WRONG");
  }
  tcpx_p2p_release(transfer);
  tcpx_p2p_session_free(session);
  return wrong == 0 ? 0 : 5;
}

int main(int argc, char** argv) {
  const char* plugin = argc > 1 ? argv[1] : "softtcpx";
  int lines[2], code, status = 0;
  pid_t other;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0) return 1;
  other = fork(); /* before the plugin is loaded: it may have threads */
  if (other < 0) return 1;
  close(lines[other == 0 ? 0 : 1]);
  code = run(lines[other == 0 ? 1 : 0], plugin, other != 0);
  if (other == 0) return code;
  waitpid(other, &status, 0);
  return code != 0 ? code : WEXITSTATUS(status);
}
