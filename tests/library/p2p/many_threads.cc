// Several threads, each with a remote of its own, over one session on each side: they post, look
// and wait at the same time, and register memory, while others do. Every byte is checked. The one
// argument says who makes progress: caller, thread, or one (one thread for all, by progress()).
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tcpx_p2p/session.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 40;
constexpr size_t kBytes = 20'000;
constexpr double kPatient = 60;

std::atomic<int> wrong{0};

uint8_t byte_of(size_t i, int thread, int round) {
  return static_cast<uint8_t>(i * 7 + thread * 31 + round);
}

void finish(tcpx_p2p::Transfer& transfer, bool looks) {
  if (!looks) return transfer.wait(kPatient);
  while (transfer.stage() == tcpx_p2p::TransferStage::kActive) std::this_thread::yield();
  transfer.wait(kPatient);
}

// One side of one remote.
void side(tcpx_p2p::Session& session, const std::string& remote, int thread, bool sends,
          bool looks) {
  std::vector<uint8_t> bytes(kBytes);
  tcpx_p2p::Transfer all = session.create_transfer(remote);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t memory = session.register_memory(bytes.data(), bytes.size());
    if (sends) {
      for (size_t i = 0; i < kBytes; ++i) bytes[i] = byte_of(i, thread, round);
    }
    std::vector<tcpx_p2p::Piece> pieces;
    for (size_t at = 0; at < kBytes; at += 1500) {
      pieces.push_back({memory, at, at + 1500 < kBytes ? 1500 : kBytes - at});
    }
    sends ? all.post_sends(pieces) : all.post_recvs(pieces);
    finish(all, looks);
    session.deregister_memory(memory);
    if (sends) continue;
    for (size_t i = 0; i < kBytes; ++i) wrong += bytes[i] != byte_of(i, thread, round);
    memset(bytes.data(), 0, bytes.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "caller";
  tcpx_p2p::Options options;
  options.plugin = "softtcpx";
  options.chunk_bytes = 1024;
  if (mode == "thread") options.progress = tcpx_p2p::Progress::kThread;
  tcpx_p2p::Session out(0, 2, options), in(0, 2, options);
  for (int i = 0; i < kThreads; ++i) {
    const std::string name = std::to_string(i);
    out.load_remote_conn_info(name, in.listen(name));
    in.load_remote_conn_info(name, out.listen(name));
    out.establish(name, kPatient);
    in.establish(name, kPatient);
  }
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  std::thread mover;
  if (mode == "one") {
    mover = std::thread([&] {
      while (!done) {
        if (!(out.progress() | in.progress())) std::this_thread::yield();
      }
    });
  }
  for (int i = 0; i < kThreads; ++i) {
    const std::string name = std::to_string(i);
    threads.emplace_back([&, name, i] { side(out, name, i, true, mode == "one"); });
    threads.emplace_back([&, name, i] { side(in, name, i, false, mode == "one"); });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  if (mover.joinable()) mover.join();
  printf("%d wrong bytes of %zu\n", wrong.load(), kThreads * kRounds * kBytes);
  return wrong == 0 ? 0 : 5;
}
