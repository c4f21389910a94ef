/* What MPI itself does over TCP, without Python in it: a ping-pong, or a stream to one side.
 *
 * Usage, on two ranks: mpi_pingpong pingpong|stream BYTES ITERATIONS SLOTS CONGESTION
 *
 * As in a run of tcpx-mpi: ITERATIONS in blocks of SLOTS, each iteration in a slot of its own, all
 * of them written before a block; a block begins together, the receiver's time counts, every
 * byte is checked after it. A ping-pong is half its round trip. Rank 0 says one line of JSON:
 * nanoseconds of an iteration in each block, and how many bytes were wrong.
 */
#include <errno.h>
#include <mpi.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { kAhead = 16, kMostDescriptors = 4096, kMostBlocks = 4096 };

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void refuse(const char* what, const char* found) {
  fprintf(stderr, "mpi_pingpong: %s, found %s\n", what, found);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static long number(const char* name, const char* text) {
  char* end = NULL;
  errno = 0;
  const long value = strtol(text, &end, 10);
  if (errno != 0 || *text == 0 || *end != 0 || value < 1 || value > INT32_MAX) refuse(name, text);
  return value;
}

/* The library's sockets are this process's own, and connected once a message has come through. */
static int set_congestion(const char* name) {
  int sockets = 0;
  for (int fd = 0; fd < kMostDescriptors; ++fd) {
    int domain = 0, protocol = 0;
    struct sockaddr_storage peer;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) continue;
    size = sizeof protocol;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0) continue;
    size = sizeof peer;
    if ((domain != AF_INET && domain != AF_INET6) || protocol != IPPROTO_TCP) continue;
    if (getpeername(fd, (struct sockaddr*)&peer, &size) != 0) continue;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) != 0)
      refuse("a congestion control that the kernel grants is needed", name);
    ++sockets;
  }
  return sockets;
}

/* What a rank sends in an iteration: no two slots alike, and none like the slot before. */
static uint8_t byte_of(int rank, long iteration, long offset) {
  return (uint8_t)(((uint64_t)iteration * 2654435761u + (uint64_t)offset * 40503u) >> 7) ^
         (uint8_t)(rank + 1);
}

static void fill(uint8_t* memory, int rank, long first, long count, long bytes, int poison) {
  for (long i = 0; i < count * bytes; ++i) {
    const uint8_t byte = byte_of(rank, first + i / bytes, i % bytes);
    memory[i] = poison ? (uint8_t)~byte : byte;
  }
}

static long wrong_in(const uint8_t* memory, int rank, long first, long count, long bytes) {
  long wrong = 0;
  for (long i = 0; i < count * bytes; ++i)
    wrong += memory[i] != byte_of(rank, first + i / bytes, i % bytes);
  return wrong;
}

static void pingpong(int rank, uint8_t* out, uint8_t* in, long count, int bytes) {
  for (long i = 0; i < count; ++i) {
    if (rank == 0) MPI_Send(out + i * bytes, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(in + i * bytes, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(out + i * bytes, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
}

/* Rank 0 sends in order, rank 1 has as many receives posted ahead as a plugin's window. */
static void stream(int rank, uint8_t* out, uint8_t* in, long count, int bytes) {
  MPI_Request requests[kAhead];
  for (long i = 0; i < count + kAhead; ++i) {
    MPI_Request* request = &requests[i % kAhead];
    if (i >= kAhead) MPI_Wait(request, MPI_STATUS_IGNORE);
    *request = MPI_REQUEST_NULL;
    if (i >= count) continue;
    if (rank == 0) MPI_Isend(out + i * bytes, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, request);
    if (rank == 1) MPI_Irecv(in + i * bytes, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, request);
  }
}

int main(int argc, char** argv) {
  int rank = 0, ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 6 || ranks != 2) refuse("two ranks and five arguments are needed", "others");
  const int streams = strcmp(argv[1], "stream") == 0;
  if (!streams && strcmp(argv[1], "pingpong") != 0) refuse("pingpong or stream expected", argv[1]);
  const long bytes = number("bytes from 1 expected", argv[2]);
  const long iterations = number("iterations from 1 expected", argv[3]);
  const long slots = number("slots from 1 expected", argv[4]);
  if (iterations % slots != 0) refuse("iterations in whole blocks of SLOTS expected", argv[3]);
  if (iterations / slots > kMostBlocks) refuse("at most 4096 blocks expected", argv[3]);

  uint8_t* out = malloc((size_t)(slots * bytes));
  uint8_t* in = malloc((size_t)(slots * bytes));
  if (out == NULL || in == NULL) refuse("memory for all slots is needed", argv[2]);
  uint8_t hello = 0, answer = 0;
  MPI_Sendrecv(&hello, 1, MPI_BYTE, 1 - rank, 1, &answer, 1, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  const int sockets = set_congestion(argv[5]);
  const int receives = !streams || rank == 1;

  static double times[kMostBlocks];
  long wrong = 0;
  for (long first = -slots; first < iterations; first += slots) { /* the first one is a warm-up */
    fill(out, rank, first, slots, bytes, 0);
    fill(in, 1 - rank, first, slots, bytes, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const int64_t start = now_ns();
    if (streams) {
      stream(rank, out, in, slots, (int)bytes);
    } else {
      pingpong(rank, out, in, slots, (int)bytes);
    }
    const double elapsed = (double)(now_ns() - start) / (double)slots / (streams ? 1 : 2);
    if (first >= 0) times[first / slots] = elapsed;
    if (receives) wrong += wrong_in(in, 1 - rank, first, slots, bytes);
  }
  /* Of a stream the receiver's time counts, of a ping-pong that of the one who asks. */
  MPI_Bcast(times, (int)(iterations / slots), MPI_DOUBLE, streams ? 1 : 0, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("{\"sockets\": %d, \"wrong\": %ld, \"ns\": [", sockets, wrong);
    for (long i = 0; i < iterations / slots; ++i) printf("%s%.1f", i > 0 ? ", " : "", times[i]);
    printf("]}\n");
  }
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
