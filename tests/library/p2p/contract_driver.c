/* The contract through C: commands of a test on stdin, an answer a line on stdout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcpx_p2p.h"

enum { MOST = 64, NAME = 32, LINE = 1 << 16 };

struct entry {
  char name[NAME];
  void* object;
  size_t bytes;
  uint64_t id;
};

static struct entry sessions[MOST], transfers[MOST], memories[MOST];
static char line[LINE], info[LINE / 2], answer[LINE];

static struct entry* find(struct entry* table, const char* name) {
  for (int i = 0; i < MOST; ++i) {
    if (table[i].name[0] != '\0' && strcmp(table[i].name, name) == 0) return &table[i];
  }
  for (int i = 0; i < MOST; ++i) {
    if (table[i].name[0] != '\0') continue;
    snprintf(table[i].name, NAME, "%s", name);
    return &table[i];
  }
  abort();
}

static const char* word(void) {
  const char* next = strtok(NULL, " \n");
  return next == NULL ? "" : next;
}
static uint64_t number(void) { return strtoull(word(), NULL, 10); }

/* A number after '#', else that of a name. */
static uint64_t id_of(const char* name) {
  return name[0] == '#' ? strtoull(name + 1, NULL, 10) : find(memories, name)->id;
}

static unsigned char byte_of(uint64_t i, uint64_t seed) {
  return (unsigned char)(i * 31 + (i >> 8) + seed * 7);
}

static tcpx_p2p_status open_session(void) {
  struct entry* entry = find(sessions, word());
  const int channels = (int)number();
  tcpx_p2p_options options;
  tcpx_p2p_options_init(&options, sizeof(options));
  options.plugin = word();
  options.chunk_bytes = number();
  options.progress =
      strcmp(word(), "thread") == 0 ? TCPX_P2P_PROGRESS_THREAD : TCPX_P2P_PROGRESS_CALLER;
  options.accept_early = strcmp(word(), "late") != 0;
  return tcpx_p2p_session_open(0, channels, &options, (tcpx_p2p_session**)&entry->object);
}

static void touch(int fills) {
  unsigned char* memory = find(memories, word())->object;
  const uint64_t offset = number(), bytes = number(), seed = number();
  for (uint64_t i = 0; i < bytes; ++i) {
    if (fills) {
      memory[offset + i] = byte_of(i, seed);
    } else if (memory[offset + i] != byte_of(i, seed)) {
      snprintf(answer, sizeof(answer), "WRONG at %llu", (unsigned long long)(offset + i));
      return;
    }
  }
}

static tcpx_p2p_status of_transfer(const char* command, struct entry* entry) {
  tcpx_p2p_transfer* transfer = entry->object;
  if (strcmp(command, "complete") == 0) {
    int complete = 0;
    const tcpx_p2p_status status = tcpx_p2p_is_complete(transfer, &complete);
    snprintf(answer, sizeof(answer), "%d", complete);
    return status;
  }
  if (strcmp(command, "wait") == 0) return tcpx_p2p_wait(transfer, atof(word()));
  if (strcmp(command, "release") == 0) {
    tcpx_p2p_release(transfer);
    entry->object = NULL; /* as after free() */
    return TCPX_P2P_OK;
  }
  const uint64_t id = id_of(word()), offset = number(), bytes = number();
  return strcmp(command, "send") == 0 ? tcpx_p2p_post_send(transfer, id, offset, bytes)
                                      : tcpx_p2p_post_recv(transfer, id, offset, bytes);
}

static tcpx_p2p_status of_remote(const char* command, tcpx_p2p_session* session) {
  const char* remote = word();
  if (strcmp(command, "listen") == 0) {
    size_t bytes = sizeof(info);
    const tcpx_p2p_status status = tcpx_p2p_listen(session, remote, info, &bytes);
    for (size_t i = 0; status == TCPX_P2P_OK && i < bytes; ++i) {
      snprintf(answer + 2 * i, 3, "%02x", (unsigned char)info[i]);
    }
    return status;
  }
  if (strcmp(command, "load") == 0) {
    const char* hex = word();
    size_t bytes = 0;
    for (unsigned byte; sscanf(hex + 2 * bytes, "%2x", &byte) == 1; ++bytes) {
      info[bytes] = (char)byte;
    }
    return tcpx_p2p_load_remote_conn_info(session, remote, info, bytes);
  }
  if (strcmp(command, "accept") == 0) return tcpx_p2p_accept(session, remote, atof(word()));
  if (strcmp(command, "connect") == 0) return tcpx_p2p_connect(session, remote, atof(word()));
  if (strcmp(command, "establish") == 0) return tcpx_p2p_establish(session, remote, atof(word()));
  if (strcmp(command, "fail") == 0) return tcpx_p2p_fail_remote(session, remote, word());
  if (strcmp(command, "leave") == 0) return tcpx_p2p_close_remote(session, remote);
  tcpx_p2p_remote_stage stage = TCPX_P2P_STAGE_CLOSED;
  tcpx_p2p_remote_state(session, remote, &stage);
  snprintf(answer, sizeof(answer), "%d", (int)stage);
  return TCPX_P2P_OK;
}

static tcpx_p2p_status of_session(const char* command, tcpx_p2p_session* session) {
  if (strcmp(command, "plugin") == 0) {
    snprintf(answer, sizeof(answer), "%s", tcpx_p2p_plugin_name(session));
    return TCPX_P2P_OK;
  }
  if (strcmp(command, "close") == 0) return tcpx_p2p_session_close(session);
  if (strcmp(command, "progress") == 0) return tcpx_p2p_progress(session, NULL);
  if (strcmp(command, "deregister") == 0) {
    return tcpx_p2p_deregister_memory(session, id_of(word()));
  }
  if (strcmp(command, "register") == 0) {
    struct entry* memory = find(memories, word());
    memory->bytes = number();
    memory->object = calloc(memory->bytes + 1, 1);
    const tcpx_p2p_status status = tcpx_p2p_register_memory(session, memory->object, memory->bytes,
                                                            TCPX_P2P_MEMORY_HOST, &memory->id);
    snprintf(answer, sizeof(answer), "%llu", (unsigned long long)memory->id);
    return status;
  }
  if (strcmp(command, "transfer") == 0) {
    struct entry* transfer = find(transfers, word());
    return tcpx_p2p_create_transfer(session, word(), (tcpx_p2p_transfer**)&transfer->object);
  }
  return of_remote(command, session);
}

static tcpx_p2p_status run(const char* command) {
  static const char* const kOfTransfers[] = {"complete", "wait", "release", "send", "recv"};
  if (strcmp(command, "session") == 0) return open_session();
  if (strcmp(command, "text") == 0) {
    snprintf(answer, sizeof(answer), "%s", tcpx_p2p_last_error());
    return TCPX_P2P_OK;
  }
  if (strcmp(command, "fill") == 0 || strcmp(command, "check") == 0) {
    touch(command[0] == 'f');
    return TCPX_P2P_OK;
  }
  for (size_t i = 0; i < sizeof(kOfTransfers) / sizeof(*kOfTransfers); ++i) {
    if (strcmp(command, kOfTransfers[i]) == 0) return of_transfer(command, find(transfers, word()));
  }
  return of_session(command, find(sessions, word())->object);
}

int main(void) {
  if (tcpx_p2p_abi_version() != TCPX_P2P_ABI_VERSION) return 3;
  while (fgets(line, sizeof(line), stdin) != NULL) {
    const char* command = strtok(line, " \n");
    if (command == NULL || strcmp(command, "quit") == 0) break;
    answer[0] = '\0';
    const tcpx_p2p_status status = run(command);
    if (status == TCPX_P2P_OK) {
      printf("ok%s%s\n", answer[0] == '\0' ? "" : " ", answer);
    } else {
      printf("%s %d\n", status < 32 ? "usage" : status < 48 ? "timeout" : "fatal", (int)status);
    }
    fflush(stdout);
  }
  for (int i = 0; i < MOST; ++i) {
    tcpx_p2p_release(transfers[i].object);
    tcpx_p2p_session_free(sessions[i].object);
    free(memories[i].object);
  }
  return 0;
}
