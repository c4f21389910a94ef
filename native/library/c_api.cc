// The C view: handles around those of C++, and every exception a value.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "tcpx_p2p.h"
#include "tcpx_p2p/session.h"

namespace p2p = tcpx_p2p;

struct tcpx_p2p_session {
  p2p::Session session;
  std::string plugin_name;
};

struct tcpx_p2p_transfer {
  p2p::Transfer transfer;
};

namespace {

// Not a std::string: it must work where there is no memory left.
thread_local char t_error[2048];

tcpx_p2p_status fail(p2p::Status status, const char* text) {
  strncpy(t_error, text, sizeof(t_error) - 1);
  return static_cast<tcpx_p2p_status>(status);
}

template <typename Call>
tcpx_p2p_status guarded(const Call& call) {
  try {
    call();
    return TCPX_P2P_OK;
  } catch (const p2p::Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(p2p::Status::kOutOfMemory, "the system has no memory for this");
  } catch (const std::exception& error) {
    return fail(p2p::Status::kInternal, error.what());
  } catch (...) {
    return fail(p2p::Status::kInternal, "an exception of an unknown kind");
  }
}

template <typename Pointer>
Pointer given(Pointer pointer, const char* name) {
  if (pointer == nullptr) {
    throw p2p::UsageError(p2p::Status::kInvalidArgument, std::string(name) + " is NULL");
  }
  return pointer;
}

p2p::Session& of(tcpx_p2p_session* session) { return given(session, "session")->session; }
p2p::Transfer& of(tcpx_p2p_transfer* transfer) { return given(transfer, "transfer")->transfer; }
std::string name(const char* remote) { return given(remote, "remote"); }

tcpx_p2p_options defaults() {
  const p2p::Options from;
  tcpx_p2p_options options{};
  options.struct_bytes = sizeof(options);
  options.plugin = nullptr;
  options.abi = from.abi;
  options.gpu = from.gpu;
  options.chunk_bytes = from.chunk_bytes;
  options.window_send = from.window_send;
  options.window_receive = from.window_receive;
  options.connect_timeout_s = from.connect_timeout_s;
  options.stall_timeout_s = from.stall_timeout_s;
  options.unpack = static_cast<int32_t>(from.unpack);
  options.progress = static_cast<int32_t>(from.progress);
  options.register_lazily = from.register_lazily ? 1 : 0;
  options.accept_early = from.accept_early ? 1 : 0;
  return options;
}

p2p::Options options_of(const tcpx_p2p_options* given_options) {
  p2p::Options options;
  if (given_options == nullptr) return options;
  tcpx_p2p_options from = defaults();  // what the program does not know is as it is there
  if (given_options->struct_bytes < sizeof(given_options->struct_bytes)) {
    throw p2p::UsageError(p2p::Status::kInvalidArgument,
                          "options.struct_bytes (" + std::to_string(given_options->struct_bytes) +
                              ") is not a size: begin with tcpx_p2p_options_init");
  }
  memcpy(&from, given_options, std::min(given_options->struct_bytes, sizeof(from)));
  if (from.plugin != nullptr) options.plugin = from.plugin;
  options.abi = from.abi;
  options.gpu = from.gpu;
  options.chunk_bytes = from.chunk_bytes;
  options.window_send = from.window_send;
  options.window_receive = from.window_receive;
  options.connect_timeout_s = from.connect_timeout_s;
  options.stall_timeout_s = from.stall_timeout_s;
  options.unpack = static_cast<p2p::Unpack>(from.unpack);
  options.progress = static_cast<p2p::Progress>(from.progress);
  options.register_lazily = from.register_lazily != 0;
  options.accept_early = from.accept_early != 0;
  return options;
}

std::vector<p2p::Piece> pieces_of(const tcpx_p2p_piece* pieces, size_t count) {
  std::vector<p2p::Piece> list;
  if (count > 0) given(pieces, "pieces");
  for (size_t i = 0; i < count; ++i) {
    list.push_back({pieces[i].mem_id, pieces[i].offset, pieces[i].bytes});
  }
  return list;
}

}  // namespace

extern "C" {

// --- Errors

const char* tcpx_p2p_status_name(tcpx_p2p_status status) {
  switch (status) {
#define NAME(status) \
  case status:       \
    return #status
    NAME(TCPX_P2P_OK);
    NAME(TCPX_P2P_INVALID_ARGUMENT);
    NAME(TCPX_P2P_UNKNOWN_MEMORY);
    NAME(TCPX_P2P_FOREIGN_MEMORY);
    NAME(TCPX_P2P_OUT_OF_BOUNDS);
    NAME(TCPX_P2P_MEMORY_IN_USE);
    NAME(TCPX_P2P_UNKNOWN_REMOTE);
    NAME(TCPX_P2P_NOT_CONNECTED);
    NAME(TCPX_P2P_ALREADY_DONE);
    NAME(TCPX_P2P_OUT_OF_ORDER);
    NAME(TCPX_P2P_BAD_INFO);
    NAME(TCPX_P2P_OTHER_VERSION);
    NAME(TCPX_P2P_OTHER_PLUGIN);
    NAME(TCPX_P2P_OTHER_SETTINGS);
    NAME(TCPX_P2P_RELEASED);
    NAME(TCPX_P2P_CLOSED);
    NAME(TCPX_P2P_BUFFER_TOO_SMALL);
    NAME(TCPX_P2P_TIMED_OUT);
    NAME(TCPX_P2P_PLUGIN_MISSING);
    NAME(TCPX_P2P_SETUP_FAILED);
    NAME(TCPX_P2P_REMOTE_LOST);
    NAME(TCPX_P2P_PLUGIN_FAILED);
    NAME(TCPX_P2P_WRONG_BYTES);
    NAME(TCPX_P2P_GPU_FAILED);
    NAME(TCPX_P2P_REMOTE_FAILED);
    NAME(TCPX_P2P_OUT_OF_MEMORY);
    NAME(TCPX_P2P_INTERNAL);
#undef NAME
  }
  return "TCPX_P2P_UNKNOWN_STATUS";
}

const char* tcpx_p2p_last_error(void) { return t_error; }
int tcpx_p2p_abi_version(void) { return TCPX_P2P_ABI_VERSION; }
const char* tcpx_p2p_version(void) { return p2p::version(); }

tcpx_p2p_status tcpx_p2p_options_init(tcpx_p2p_options* options, size_t struct_bytes) {
  return guarded([&] {
    given(options, "options");
    if (struct_bytes < sizeof(options->struct_bytes)) {
      throw p2p::UsageError(
          p2p::Status::kInvalidArgument,
          "struct_bytes (" + std::to_string(struct_bytes) + ") is not sizeof(tcpx_p2p_options)");
    }
    const tcpx_p2p_options ours = defaults();
    memset(options, 0, struct_bytes);
    memcpy(options, &ours, std::min(struct_bytes, sizeof(ours)));
    options->struct_bytes = struct_bytes;
  });
}

// --- Session

tcpx_p2p_status tcpx_p2p_session_open(int device, int channels, const tcpx_p2p_options* options,
                                      tcpx_p2p_session** session) {
  return guarded([&] {
    *given(session, "session") = nullptr;
    p2p::Session made(device, channels, options_of(options));
    std::string name = made.plugin_name();
    *session = new tcpx_p2p_session{std::move(made), std::move(name)};
  });
}

tcpx_p2p_status tcpx_p2p_session_close(tcpx_p2p_session* session) {
  return guarded([&] { of(session).close(); });
}

void tcpx_p2p_session_free(tcpx_p2p_session* session) { delete session; }

tcpx_p2p_status tcpx_p2p_listen(tcpx_p2p_session* session, const char* remote, void* info,
                                size_t* bytes) {
  return guarded([&] {
    given(bytes, "bytes");
    const std::string made = of(session).listen(name(remote));
    const size_t room = info == nullptr ? 0 : *bytes;
    *bytes = made.size();
    if (room < made.size()) {
      throw p2p::UsageError(p2p::Status::kBufferTooSmall,
                            "connection info has " + std::to_string(made.size()) +
                                " bytes, and there is room for " + std::to_string(room));
    }
    memcpy(info, made.data(), made.size());
  });
}

tcpx_p2p_status tcpx_p2p_load_remote_conn_info(tcpx_p2p_session* session, const char* remote,
                                               const void* info, size_t bytes) {
  return guarded([&] {
    const char* data = static_cast<const char*>(given(info, "info"));
    of(session).load_remote_conn_info(name(remote), std::string(data, bytes));
  });
}

tcpx_p2p_status tcpx_p2p_accept(tcpx_p2p_session* session, const char* remote, double timeout_s) {
  return guarded([&] { of(session).accept(name(remote), timeout_s); });
}

tcpx_p2p_status tcpx_p2p_connect(tcpx_p2p_session* session, const char* remote, double timeout_s) {
  return guarded([&] { of(session).connect(name(remote), timeout_s); });
}

tcpx_p2p_status tcpx_p2p_establish(tcpx_p2p_session* session, const char* remote,
                                   double timeout_s) {
  return guarded([&] { of(session).establish(name(remote), timeout_s); });
}

tcpx_p2p_status tcpx_p2p_remote_state(tcpx_p2p_session* session, const char* remote,
                                      tcpx_p2p_remote_stage* stage) {
  p2p::Status ended = p2p::Status::kOk;
  std::string text;
  const tcpx_p2p_status status = guarded([&] {
    const std::string named = name(remote);
    ended = of(session).remote_status(named);
    text = of(session).remote_error(named);
    if (stage != nullptr) {
      *stage = static_cast<tcpx_p2p_remote_stage>(of(session).remote_stage(named));
    }
  });
  if (status != TCPX_P2P_OK || ended == p2p::Status::kOk) return status;
  return fail(ended, text.c_str());
}

tcpx_p2p_status tcpx_p2p_fail_remote(tcpx_p2p_session* session, const char* remote,
                                     const char* reason) {
  return guarded([&] { of(session).fail_remote(name(remote), given(reason, "reason")); });
}

tcpx_p2p_status tcpx_p2p_close_remote(tcpx_p2p_session* session, const char* remote) {
  return guarded([&] { of(session).close_remote(name(remote)); });
}

// --- Memory

tcpx_p2p_status tcpx_p2p_register_memory(tcpx_p2p_session* session, void* data, size_t bytes,
                                         tcpx_p2p_memory_kind kind, uint64_t* mem_id) {
  return guarded([&] {
    given(mem_id, "mem_id");
    *mem_id = of(session).register_memory(data, bytes, static_cast<p2p::MemoryKind>(kind));
  });
}

tcpx_p2p_status tcpx_p2p_deregister_memory(tcpx_p2p_session* session, uint64_t mem_id) {
  return guarded([&] { of(session).deregister_memory(mem_id); });
}

// --- Transfers

tcpx_p2p_status tcpx_p2p_create_transfer(tcpx_p2p_session* session, const char* remote,
                                         tcpx_p2p_transfer** transfer) {
  return guarded([&] {
    *given(transfer, "transfer") = nullptr;
    *transfer = new tcpx_p2p_transfer{of(session).create_transfer(name(remote))};
  });
}

tcpx_p2p_status tcpx_p2p_post_send(tcpx_p2p_transfer* transfer, uint64_t mem_id, uint64_t offset,
                                   uint64_t bytes) {
  return guarded([&] { of(transfer).post_send(mem_id, offset, bytes); });
}

tcpx_p2p_status tcpx_p2p_post_recv(tcpx_p2p_transfer* transfer, uint64_t mem_id, uint64_t offset,
                                   uint64_t bytes) {
  return guarded([&] { of(transfer).post_recv(mem_id, offset, bytes); });
}

tcpx_p2p_status tcpx_p2p_post_sends(tcpx_p2p_transfer* transfer, const tcpx_p2p_piece* pieces,
                                    size_t count) {
  return guarded([&] { of(transfer).post_sends(pieces_of(pieces, count)); });
}

tcpx_p2p_status tcpx_p2p_post_recvs(tcpx_p2p_transfer* transfer, const tcpx_p2p_piece* pieces,
                                    size_t count) {
  return guarded([&] { of(transfer).post_recvs(pieces_of(pieces, count)); });
}

tcpx_p2p_status tcpx_p2p_is_complete(tcpx_p2p_transfer* transfer, int* complete) {
  return guarded([&] { *given(complete, "complete") = of(transfer).is_complete() ? 1 : 0; });
}

tcpx_p2p_status tcpx_p2p_wait(tcpx_p2p_transfer* transfer, double timeout_s) {
  return guarded([&] { of(transfer).wait(timeout_s); });
}

void tcpx_p2p_release(tcpx_p2p_transfer* transfer) { delete transfer; }

tcpx_p2p_status tcpx_p2p_progress(tcpx_p2p_session* session, int* moved) {
  return guarded([&] {
    const bool any = of(session).progress();
    if (moved != nullptr) *moved = any ? 1 : 0;
  });
}

// --- What a session is

const char* tcpx_p2p_plugin_name(const tcpx_p2p_session* session) {
  return session == nullptr ? nullptr : session->plugin_name.c_str();
}

int tcpx_p2p_memory_kinds(const tcpx_p2p_session* session) {
  if (session == nullptr) return 0;
  int bits = 0;
  guarded([&] {
    for (const p2p::MemoryKind kind : session->session.memory_kinds()) {
      bits |= static_cast<int>(kind);
    }
  });
  return bits;
}

}  // extern "C"
