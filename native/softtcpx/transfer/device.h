// A network interface that we offer, with what all its connections share.
#pragma once

#include <atomic>
#include <utility>

#include "softtcpx/environment/interfaces.h"
#include "softtcpx/environment/settings.h"
#include "softtcpx/environment/share.h"
#include "softtcpx/gpu/copy_queue.h"
#include "softtcpx/transfer/poller.h"
#include "softtcpx/transfer/worker.h"

namespace softtcpx {

struct Device {
  // `presence`: of this process, where workers are counted by cores.
  Device(int index_, Interface interface_, const Settings& settings_,
         const Presence* presence_ = nullptr)
      : index(index_),
        interface(std::move(interface_)),
        settings(settings_),
        presence(presence_),
        workers(settings_.spin_us) {}

  const int index;
  const Interface interface;
  const Settings& settings;
  const Presence* const presence;
  Poller poller;  // of the connections whose owner is the caller of test
  WorkerPool workers;
  std::atomic<int> large{0};  // pending messages of the connections that callers drive, too
  CopyQueues copy_queues;
};

}  // namespace softtcpx
