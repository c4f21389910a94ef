// What a NIXL user may set of this backend: parameters of create_backend, else the environment.
#pragma once

#include <cstdint>
#include <string>

#include "library/nixl/abi.h"

namespace tcpx::nixl {

struct Options {
  std::string plugin;  // path of the NCCL network plugin
  int device = 0;      // of the plugin
  int channels = 4;    // connections of the plugin a direction and remote; equal on both sides
  uint64_t chunk_bytes = 256 << 10;  // equal on both sides, as are the two of staging
  uint64_t stage_below = 32 << 10;   // smaller blocks are gathered
  uint64_t stage_bytes = 256 << 10;  // into messages of at most this
  uint64_t inline_bytes = 32 << 10;  // a request of at most this travels in the control stream
  int gpu = -1;                      // whose memory may be registered
  std::string nvrtc;         // folders that NVRTC may be in, "a:b"; "": where the linker looks
  std::string kernel_cache;  // where compiled kernels are kept; "": nowhere
  std::string ip;            // to listen on; "": every one
  std::string interface;     // whose addresses others are told; "": all
  uint16_t port = 0;         // of the control stream; 0: any
  double connect_patience_s = 10;
  double patience_s = 60;  // without progress of what is under way: the remote counts as lost
};

// Parameter `chunk_bytes`, or TCPX_NIXL_CHUNK_BYTES where there is none. Throws
// std::invalid_argument: which option, what it is, what it may be.
Options read_options(const Params& params);

// All of them as they are without parameters.
Params default_params();

}  // namespace tcpx::nixl
