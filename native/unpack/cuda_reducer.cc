#include "unpack/cuda_reducer.h"

#include <algorithm>
#include <string>

#include "cuda/gpu.h"
#include "cuda/sources.h"
#include "unpack/kernel_arguments.h"

namespace tcpx {
namespace {

// Of fragments a block. An H200's memory is busiest with these (bench_unpack_cuda).
constexpr unsigned kLeastGroup = 4;
constexpr unsigned kAlone = 8;  // fragments that one block takes
constexpr unsigned kWarps = 8;
constexpr unsigned kThreads = 256;
constexpr uint64_t kPieceBytes = 4096;  // of a warp, as reduce.cu has it

uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace

unsigned fragments_of_block(uint64_t fragments, int multiprocessors) {
  unsigned group = fragments > 0 ? kUnpackGroup : 0;
  while (group > kLeastGroup && fragments / group < static_cast<uint64_t>(multiprocessors) / 5) {
    group /= 2;
  }
  if (fragments <= kAlone) {  // one block has a warp for each: no other is to be waited for
    for (group = fragments > 0; group < fragments;) group *= 2;
  }
  return group;
}

// A line of the source for each kernel: what is not wanted is not compiled.
void CudaReducer::prepare(const Arithmetic& arithmetic) {
  const int op = arithmetic.op < kMeetingOps ? arithmetic.op : kSum;
  const bool divides = arithmetic.op == kAvg;
  const std::string type = std::to_string(arithmetic.type);
  const std::string of_op = type + "_" + std::to_string(op);
  const std::string of_scale = type + "_" + std::to_string(divides);
  const auto line = [&](const std::string& macro, const std::string& name, int second) {
    return macro + "(" + name + ", " + type + ", " + std::to_string(second) + ")\n";
  };
  const std::string source = std::string(kReduceSource) + "\nnamespace tcpx {\n" +
                             line("TCPX_REDUCE_FRAGMENTS", "reduce_fragments_" + of_op, op) +
                             line("TCPX_REDUCE_LOCAL", "reduce_local_" + of_op, op) +
                             line("TCPX_SCALE", "scale_" + of_scale, divides) + "}\n";
  const GpuCurrent current(&gpu_);
  fragments_kernel_ = gpu_.function(source, ("reduce_fragments_" + of_op).c_str());
  local_kernel_ = gpu_.function(source, ("reduce_local_" + of_op).c_str());
  scale_kernel_ = gpu_.function(source, ("scale_" + of_scale).c_str());
  arithmetic_ = arithmetic;
}

void CudaReducer::add(const UnpackSource& source, const uint8_t* local, uint8_t* destination) {
  if (source.count == 0) return;  // no block is for it
  arguments_.item[items_++] = {address(source.fragments), static_cast<unsigned>(source.count),
                               address(source.bounce), address(destination), address(local)};
  fragments_ += source.count;
}

int CudaReducer::launch(void* stream, uint64_t blocks_done, uint64_t ticket_at, uint64_t ticket) {
  ReduceArguments& a = arguments_;
  a.group = fragments_of_block(fragments_, gpu_.facts.multiprocessors);
  unsigned most_blocks = 1;
  a.blocks = 0;
  for (unsigned i = 0; i < items_; ++i) {
    const unsigned blocks = (a.item[i].fragment_count + a.group - 1) / a.group;
    a.blocks += blocks;
    most_blocks = std::max(most_blocks, blocks);
  }
  a.blocks_done = blocks_done;
  a.ticket_at = ticket_at;
  a.ticket = ticket;
  void* arguments[] = {&a};
  const unsigned warps = std::clamp(a.group, 1u, kWarps);
  const int code = cuda().launch(fragments_kernel_, most_blocks, items_, 1, 32 * warps, 1, 1, 0,
                                 stream, arguments, nullptr);
  clear();
  return code;
}

int CudaReducer::launch_local(void* function, const LocalArguments& local, void* stream) const {
  if (local.bytes == 0) return 0;
  const uint64_t a_block = kThreads / 32 * kPieceBytes;
  const uint64_t room = uint64_t{8} * gpu_.facts.multiprocessors;
  const auto blocks = std::min<uint64_t>((local.bytes + a_block - 1) / a_block, room);
  void* arguments[] = {const_cast<LocalArguments*>(&local)};
  return cuda().launch(function, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1, 0, stream,
                       arguments, nullptr);
}

int CudaReducer::reduce(void* stream, uint64_t from, uint64_t local, uint64_t to,
                        uint64_t bytes) const {
  return launch_local(local_kernel_, {from, local, to, bytes, 1}, stream);
}

int CudaReducer::scale(void* stream, uint64_t from, uint64_t to, uint64_t bytes) const {
  return launch_local(scale_kernel_, {from, from, to, bytes, arithmetic_.factor}, stream);
}

}  // namespace tcpx
