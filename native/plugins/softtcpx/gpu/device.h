// A network interface that we offer, with what all its connections share.
#pragma once

#include <utility>

#include "plugins/softtcpx/gpu/copy_queue.h"
#include "plugins/softtcpx/handshake/interfaces.h"
#include "plugins/softtcpx/transfer/poller.h"
#include "plugins/softtcpx/api/settings.h"
#include "plugins/softtcpx/transfer/worker.h"

namespace softtcpx {

struct Device {
  Device(int index_, Interface interface_, const Settings& settings_)
      : index(index_),
        interface(std::move(interface_)),
        settings(settings_),
        workers(settings_.spin_us) {}

  const int index;
  const Interface interface;
  const Settings& settings;
  Poller poller;  // of the connections whose owner is the caller of test
  WorkerPool workers;
  CopyQueues copy_queues;
};

}  // namespace softtcpx
