// A network interface that we offer, with what all its connections share.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "plugins/softtcpx/api/settings.h"
#include "plugins/softtcpx/api/share.h"
#include "plugins/softtcpx/gpu/copy_queue.h"
#include "plugins/softtcpx/handshake/interfaces.h"
#include "plugins/softtcpx/transfer/poller.h"
#include "plugins/softtcpx/transfer/worker.h"

namespace softtcpx {

struct Device {
  // `presence`: of this process, where workers are counted by cores.
  Device(int index_, Interface interface_, const Settings& settings_,
         const Presence* presence_ = nullptr)
      : index(index_),
        interface(std::move(interface_)),
        settings(settings_),
        presence(presence_),
        workers(settings_.spin_us),
        shared_pages(settings_.traps.shared_pages) {}

  const int index;
  const Interface interface;
  const Settings& settings;
  const Presence* const presence;
  Poller poller;  // of the connections whose owner is the caller of test
  WorkerPool workers;
  CopyQueues copy_queues;
  std::atomic<int64_t> shared_pages;  // bounce pages that are free, where a trap says so
};

}  // namespace softtcpx
