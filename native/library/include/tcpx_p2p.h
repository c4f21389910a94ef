/* The C view of tcpx_p2p/session.h: the same steps, with values where C++ throws.
 *
 * Design, units, ownership and threads are as they are described there. Every function that can
 * fail returns a tcpx_p2p_status; tcpx_p2p_last_error() then has the text, one line, of this
 * thread's last failure. Nothing here ends the process or lets a C++ exception through.
 *
 * Names of remotes are texts that end with 0. Pointers to write to may not be NULL unless it is
 * said. A function that is given NULL where an object must be returns TCPX_P2P_INVALID_ARGUMENT.
 *
 * Versions. tcpx_p2p_abi_version() is TCPX_P2P_ABI_VERSION of the library that is loaded: it
 * changes only where a program would have to be compiled anew. The first member of a struct says
 * how long it is for the program; members behind what the library knows are not looked at, and
 * members that the program does not know have their defaults. */
#ifndef TCPX_P2P_H
#define TCPX_P2P_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TCPX_P2P_C_API __attribute__((visibility("default")))
#else
#define TCPX_P2P_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TCPX_P2P_ABI_VERSION 1

/* --- Errors */

/* What went wrong: tcpx_p2p::Status by the same numbers, whose comments say when. 1 to 31 are
 * mistakes of the caller's, after which nothing has moved; 32 to 47 waits in vain, which may be
 * repeated; from 48 on errors that stay. */
typedef enum tcpx_p2p_status {
  TCPX_P2P_OK = 0,
  TCPX_P2P_INVALID_ARGUMENT = 1,
  TCPX_P2P_UNKNOWN_MEMORY = 2,
  TCPX_P2P_FOREIGN_MEMORY = 3,
  TCPX_P2P_OUT_OF_BOUNDS = 4,
  TCPX_P2P_MEMORY_IN_USE = 5,
  TCPX_P2P_UNKNOWN_REMOTE = 6,
  TCPX_P2P_NOT_CONNECTED = 7,
  TCPX_P2P_ALREADY_DONE = 8,
  TCPX_P2P_OUT_OF_ORDER = 9,
  TCPX_P2P_BAD_INFO = 10,
  TCPX_P2P_OTHER_VERSION = 11,
  TCPX_P2P_OTHER_PLUGIN = 12,
  TCPX_P2P_OTHER_SETTINGS = 13,
  TCPX_P2P_RELEASED = 14,
  TCPX_P2P_CLOSED = 15,
  TCPX_P2P_BUFFER_TOO_SMALL = 16,
  TCPX_P2P_TIMED_OUT = 32,
  TCPX_P2P_PLUGIN_MISSING = 48,
  TCPX_P2P_SETUP_FAILED = 49,
  TCPX_P2P_REMOTE_LOST = 50,
  TCPX_P2P_PLUGIN_FAILED = 51,
  TCPX_P2P_WRONG_BYTES = 52,
  TCPX_P2P_GPU_FAILED = 53,
  TCPX_P2P_REMOTE_FAILED = 54,
  TCPX_P2P_OUT_OF_MEMORY = 55,
  TCPX_P2P_INTERNAL = 56
} tcpx_p2p_status;

/* "TCPX_P2P_OUT_OF_BOUNDS" and the like; "TCPX_P2P_UNKNOWN_STATUS" for another number. */
TCPX_P2P_C_API const char* tcpx_p2p_status_name(tcpx_p2p_status status);

/* The text of this thread's last call that failed, until its next one that fails; "" before. */
TCPX_P2P_C_API const char* tcpx_p2p_last_error(void);

/* TCPX_P2P_ABI_VERSION of the library, and its release, "0.1.0". */
TCPX_P2P_C_API int tcpx_p2p_abi_version(void);
TCPX_P2P_C_API const char* tcpx_p2p_version(void);

/* --- What a session is made with */

/* Who moves the bytes: calls of the library, or a thread of its own. */
typedef enum tcpx_p2p_progress_mode {
  TCPX_P2P_PROGRESS_CALLER = 0,
  TCPX_P2P_PROGRESS_THREAD = 1
} tcpx_p2p_progress_mode;

/* How receives into memory of a GPU are put together where the plugin scatters them. */
typedef enum tcpx_p2p_unpack {
  TCPX_P2P_UNPACK_KERNEL = 0,
  TCPX_P2P_UNPACK_COPIES = 1,
  TCPX_P2P_UNPACK_HOST = 2
} tcpx_p2p_unpack;

/* The bits of tcpx_p2p_memory_kinds(), too. */
typedef enum tcpx_p2p_memory_kind {
  TCPX_P2P_MEMORY_HOST = 1, /* of the process: any address, any size */
  TCPX_P2P_MEMORY_CUDA = 2  /* of the session's GPU, where the plugin takes it */
} tcpx_p2p_memory_kind;

/* How far the connections of a remote are; see tcpx_p2p::RemoteStage. */
typedef enum tcpx_p2p_remote_stage {
  TCPX_P2P_STAGE_NEW = 0,
  TCPX_P2P_STAGE_CONNECTING = 1,
  TCPX_P2P_STAGE_CONNECTED = 2,
  TCPX_P2P_STAGE_FAILED = 3,
  TCPX_P2P_STAGE_CLOSED = 4
} tcpx_p2p_remote_stage;

/* See tcpx_p2p::Options, whose members these are. Always begun by tcpx_p2p_options_init. */
typedef struct tcpx_p2p_options {
  size_t struct_bytes;      /* sizeof(tcpx_p2p_options) as the program was compiled */
  const char* plugin;       /* NULL: UCCL_TCPX_PLUGIN_PATH; copied */
  int32_t abi;              /* 0: the newest that the plugin offers */
  int32_t gpu;              /* -1: none */
  uint64_t chunk_bytes;     /* 524288 */
  int32_t window_send;      /* 12 */
  int32_t window_receive;   /* 16 */
  double connect_timeout_s; /* 30 */
  double stall_timeout_s;   /* 30 */
  int32_t unpack;           /* tcpx_p2p_unpack */
  int32_t progress;         /* tcpx_p2p_progress_mode */
  int32_t register_lazily;  /* 1 */
  int32_t reserved;         /* 0 */
  int32_t accept_early;     /* 1 */
} tcpx_p2p_options;

/* A stretch of registered memory. */
typedef struct tcpx_p2p_piece {
  uint64_t mem_id;
  uint64_t offset;
  uint64_t bytes;
} tcpx_p2p_piece;

/* Fills it with the defaults; `struct_bytes` is sizeof(tcpx_p2p_options). */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_options_init(tcpx_p2p_options* options,
                                                     size_t struct_bytes);

/* --- Session */

typedef struct tcpx_p2p_session tcpx_p2p_session;
typedef struct tcpx_p2p_transfer tcpx_p2p_transfer;

/* `options` may be NULL: the defaults. The session is the caller's, for tcpx_p2p_session_free. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_session_open(int device, int channels,
                                                     const tcpx_p2p_options* options,
                                                     tcpx_p2p_session** session);
/* Closes all remotes; what is not complete is lost. May be called again. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_session_close(tcpx_p2p_session* session);
/* Closes, and frees the handle; transfers of it may be freed later. NULL is nothing. */
TCPX_P2P_C_API void tcpx_p2p_session_free(tcpx_p2p_session* session);

/* Writes what the remote's session needs to connect to this one. `*bytes` is the room behind
 * `info`, and becomes the size of the info; with too little room, or with info NULL, nothing is
 * written but that size, and TCPX_P2P_BUFFER_TOO_SMALL returned. 16 KiB are enough for any info. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_listen(tcpx_p2p_session* session, const char* remote,
                                               void* info, size_t* bytes);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_load_remote_conn_info(tcpx_p2p_session* session,
                                                              const char* remote, const void* info,
                                                              size_t bytes);
/* Seconds without progress; negative: those of the options. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_accept(tcpx_p2p_session* session, const char* remote,
                                               double timeout_s);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_connect(tcpx_p2p_session* session, const char* remote,
                                                double timeout_s);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_establish(tcpx_p2p_session* session, const char* remote,
                                                  double timeout_s);

/* How far a remote is; what has ended it is the value returned (TCPX_P2P_OK: nothing has), with its
 * text in tcpx_p2p_last_error(). `stage` may be NULL. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_remote_state(tcpx_p2p_session* session, const char* remote,
                                                     tcpx_p2p_remote_stage* stage);
/* Ends a remote for this reason; see tcpx_p2p::Session::fail_remote. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_fail_remote(tcpx_p2p_session* session, const char* remote,
                                                    const char* reason);
/* Closes its connections; see tcpx_p2p::Session::close_remote. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_close_remote(tcpx_p2p_session* session, const char* remote);

/* --- Memory */

TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_register_memory(tcpx_p2p_session* session, void* data,
                                                        size_t bytes, tcpx_p2p_memory_kind kind,
                                                        uint64_t* mem_id);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_deregister_memory(tcpx_p2p_session* session,
                                                          uint64_t mem_id);

/* --- Transfers */

/* The transfer is the caller's, for tcpx_p2p_release. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_create_transfer(tcpx_p2p_session* session,
                                                        const char* remote,
                                                        tcpx_p2p_transfer** transfer);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_post_send(tcpx_p2p_transfer* transfer, uint64_t mem_id,
                                                  uint64_t offset, uint64_t bytes);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_post_recv(tcpx_p2p_transfer* transfer, uint64_t mem_id,
                                                  uint64_t offset, uint64_t bytes);
/* Several messages in this order; all of them, or none where it fails. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_post_sends(tcpx_p2p_transfer* transfer,
                                                   const tcpx_p2p_piece* pieces, size_t count);
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_post_recvs(tcpx_p2p_transfer* transfer,
                                                   const tcpx_p2p_piece* pieces, size_t count);
/* `*complete` becomes 1 or 0. Makes progress and does not wait. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_is_complete(tcpx_p2p_transfer* transfer, int* complete);
/* Seconds without progress; negative: those of the options. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_wait(tcpx_p2p_transfer* transfer, double timeout_s);
/* Forgets the transfer and frees the handle; what is not complete goes on. NULL is nothing. */
TCPX_P2P_C_API void tcpx_p2p_release(tcpx_p2p_transfer* transfer);

/* One round over all remotes; `*moved`, which may be NULL, becomes 1 when anything moved. */
TCPX_P2P_C_API tcpx_p2p_status tcpx_p2p_progress(tcpx_p2p_session* session, int* moved);

/* --- What a session is */

/* As the plugin calls itself; the text lives as long as the session's handle. NULL for NULL. */
TCPX_P2P_C_API const char* tcpx_p2p_plugin_name(const tcpx_p2p_session* session);
/* Bits of tcpx_p2p_memory_kind that tcpx_p2p_register_memory takes here; 0 for NULL. */
TCPX_P2P_C_API int tcpx_p2p_memory_kinds(const tcpx_p2p_session* session);

#ifdef __cplusplus
}
#endif

#endif
