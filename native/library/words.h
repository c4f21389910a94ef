// What went wrong with a remote, put into words; those of a run: tcpx_mpi/transport/errors.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session.h"
#include "tcpx_p2p/session.h"

namespace tcpx_p2p {

// "512 KiB", "1.5 MiB" or "17 B", with at most two decimals.
std::string size_text(uint64_t bytes);
// "30", "0.05".
std::string seconds_text(double seconds);

Status status_of(const tcpx::TransferFault& fault);
std::string text_of(const tcpx::TransferFault& fault);

// What a wait for transfer `number` waited for in vain.
std::string stall_text(uint64_t number, double patience_s,
                       const std::vector<tcpx::TransferPicture>& picture, const std::string& said);

}  // namespace tcpx_p2p
