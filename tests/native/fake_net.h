// A plugin in the test's hands: it keeps to the contract, notes every breach of it by its caller,
// and completes, refuses or is busy as a test scripts it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "net/net.h"

enum class Call { kIsend, kIrecv, kTest, kConsumed, kConnect, kAccept, kFlush, kTestFlush };

struct FakeComm;

struct FakeRequest {
  FakeComm* comm = nullptr;
  uint64_t serial = 0;  // on its comm, from 0
  uint8_t* data = nullptr;
  size_t bytes = 0;
  void* mhandle = nullptr;
  int tests = 0;
  bool done = false;  // and seen
  // Of a send 1; of a receive, those in one call, of which the first is also above.
  int n = 1;
  int tags[tcpx::kMaxReceives] = {};
  uint8_t* parts[tcpx::kMaxReceives] = {};
  size_t room[tcpx::kMaxReceives] = {};
  int got[tcpx::kMaxReceives] = {};  // as it was told
};

struct FakeComm {
  bool sends = false;
  uint64_t posted = 0;
  uint64_t done = 0;
  uint64_t consumed = 0;
  uint64_t most_outstanding = 0;
  FakeRequest requests[kNetMaxRequests];  // pointers repeat every 16 posts, as the real ones do
  uint64_t outstanding() const { return posted - (sends ? done : consumed); }
};

// A flush that is under way, of a receive that is done.
struct FakeFlush {
  FakeRequest* receive;
  int tests = 0;
  bool done = false;
};

struct FakeEvent {
  Call call;
  FakeComm* comm;
  uint64_t serial;  // of the request; of a refused or busy post, what it would have been
  uint8_t* data;    // of the request
  bool moved;       // a post that was taken, a test that said done
};

class FakeNet : public tcpx::Net {
 public:
  // --- Script -----------------------------------------------------------------------------------
  std::function<bool(const FakeRequest&)> completes = [](const FakeRequest&) { return true; };
  std::function<bool(const FakeComm&)> busy = [](const FakeComm&) { return false; };
  std::function<int(const FakeRequest&)> reported_size = [](const FakeRequest&) { return -1; };
  // Of a receive of several, how many bytes each has got; else `reported_size`.
  std::function<void(const FakeRequest&, int*)> report_group = [](const FakeRequest&, int*) {};
  std::function<int(Call, const FakeComm*)> code = [](Call, const FakeComm*) { return 0; };
  std::function<void(const FakeEvent&)> watch = [](const FakeEvent&) {};
  bool consumed_offered = true;
  int max_receives = 1;  // in one call
  // Tests of a flush until it is done; 0: iflush gives no request; none: there is nothing to flush.
  std::optional<int> flush_tests;
  std::function<bool(const FakeFlush&)> flushes = [this](const FakeFlush& flush) {
    return flush.tests >= *flush_tests;
  };

  // --- Record -----------------------------------------------------------------------------------
  std::vector<FakeEvent> events;
  std::vector<std::string> breaches;
  uint64_t calls = 0;  // of the data path
  int deregistered = 0;
  std::vector<void*> closed;

  struct Registration {
    void* comm;
    uint8_t* data;
    size_t bytes;
  };
  std::deque<Registration> registrations;  // their addresses are the mhandles

  uint64_t count(Call call, bool moved_only = true) const {
    uint64_t n = 0;
    for (const FakeEvent& e : events) n += e.call == call && (e.moved || !moved_only);
    return n;
  }

  // --- Net --------------------------------------------------------------------------------------
  int abi() const override { return 7; }
  std::string name() const override { return "fake"; }
  bool offers_consumed() const override { return consumed_offered; }
  bool offers_device_mr() const override { return false; }
  bool offers_dma_buf() const override { return false; }
  size_t max_region_bytes() const override { return INT32_MAX; }
  int init(NetLogger) override { return 0; }
  int finalize() override { return 0; }
  int devices(int* count) override {
    *count = 1;
    return 0;
  }
  int properties(int, tcpx::NetProperties* out) override {
    *out = {};
    return 0;
  }
  int listen(int, void* handle, void** listen_comm) override {
    memset(handle, 0x11, kNetHandleBytes);
    *listen_comm = this;
    return 0;
  }
  int connect(int, void*, void** comm, NetDeviceHandle**) override { return open(true, comm); }
  int accept(void*, void** comm, NetDeviceHandle**) override { return open(false, comm); }
  int reg_mr(void* comm, void* data, size_t bytes, int, void** mhandle) override {
    if (bytes > max_region_bytes()) return kNetInvalidArgument;
    registrations.push_back({comm, static_cast<uint8_t*>(data), bytes});
    *mhandle = &registrations.back();
    return 0;
  }
  int dereg_mr(void*, void*) override {
    ++deregistered;
    return 0;
  }
  int isend(void* comm, void* data, size_t bytes, int tag, void* mhandle, void** request) override {
    return post(Call::kIsend, comm, 1, &data, &bytes, &tag, &mhandle, request);
  }
  int irecv(void* comm, int n, void** data, size_t* bytes, int* tags, void** mhandles,
            void** request) override {
    return post(Call::kIrecv, comm, n, data, bytes, tags, mhandles, request);
  }
  int iflush(void* pointer, int n, void** data, int* sizes, void** mhandles,
             void** request) override {
    ++calls;
    auto* comm = static_cast<FakeComm*>(pointer);
    if (const int refused = code(Call::kFlush, comm)) return refused;
    FakeRequest& receive = comm->requests[(comm->done - 1) % kNetMaxRequests];
    if (!flush_tests) breach("iflush of host memory", &receive);
    if (*request != nullptr) breach("iflush with a request that is not NULL", &receive);
    int sum = 0;
    for (int i = 0; i < n && i < receive.n; ++i) {
      if (data[i] != receive.parts[i] || mhandles[i] != receive.mhandle ||
          (n > 1 && sizes[i] != receive.got[i])) {
        breach("iflush of what was not received", &receive);
      }
      sum += sizes[i];
    }
    if (n != receive.n || sum == 0 || !receive.done ||
        (n == 1 && sum != static_cast<int>(receive.bytes))) {
      breach("iflush of what was not received", &receive);
    }
    note({Call::kFlush, comm, receive.serial, receive.data, true});
    if (flush_tests == 0) return 0;
    flushes_.push_back({&receive});
    *request = &flushes_.back();
    return 0;
  }

  int test(void* pointer, int* done, int* sizes) override {
    ++calls;
    for (FakeFlush& flush : flushes_) {
      if (&flush == pointer) return test_flush(flush, done);
    }
    auto* request = static_cast<FakeRequest*>(pointer);
    FakeComm& comm = *request->comm;
    if (request->done) breach("test after done", request);
    if (request->serial != comm.done) breach("test of a request that is not the oldest", request);
    if (done == nullptr || sizes == nullptr) breach("test without room for an answer", request);
    for (int i = 0; i < request->n && sizes != nullptr; ++i) {
      if (sizes[i] != 0) breach("test with a size that is not zeroed", request);
    }
    if (const int refused = code(Call::kTest, &comm)) return refused;
    ++request->tests;
    *done = completes(*request) ? 1 : 0;
    if (*done) {
      request->done = true;
      ++comm.done;
      const int size = reported_size(*request);
      if (size >= 0) sizes[0] = size;
      if (!comm.sends) report_group(*request, sizes);
      std::copy(sizes, sizes + request->n, request->got);
    }
    note({Call::kTest, &comm, request->serial, request->data, *done != 0});
    return 0;
  }

  int irecv_consumed(void* pointer, int n, void* request_pointer) override {
    ++calls;
    auto* request = static_cast<FakeRequest*>(request_pointer);
    auto* comm = static_cast<FakeComm*>(pointer);
    if (!consumed_offered) breach("irecvConsumed that is not offered", request);
    if (n != request->n || request->comm != comm || comm->sends)
      breach("irecvConsumed of another", request);
    if (!request->done) breach("irecvConsumed before done", request);
    if (request->serial != comm->consumed) breach("irecvConsumed out of order or twice", request);
    if (const int refused = code(Call::kConsumed, comm)) return refused;
    ++comm->consumed;
    note({Call::kConsumed, comm, request->serial, request->data, true});
    return 0;
  }

  int close_send(void* comm) override { return close(comm); }
  int close_recv(void* comm) override { return close(comm); }
  int close_listen(void*) override { return 0; }

 protected:
  void breach(const std::string& what, const FakeRequest* request) {
    breaches.push_back(what + (request != nullptr ? ", request " + std::to_string(request->serial)
                                                  : std::string()));
  }

 private:
  int open(bool sends, void** comm) {
    comms_.push_back(std::make_unique<FakeComm>());
    comms_.back()->sends = sends;
    *comm = comms_.back().get();
    return 0;
  }

  int close(void* comm) {
    closed.push_back(comm);
    return 0;
  }

  int test_flush(FakeFlush& flush, int* done) {
    FakeRequest& receive = *flush.receive;
    if (flush.done) breach("test of a flush after done", &receive);
    if (const int refused = code(Call::kTestFlush, receive.comm)) return refused;
    ++flush.tests;
    *done = flush.done = flushes(flush);
    note({Call::kTestFlush, receive.comm, receive.serial, receive.data, flush.done});
    return 0;
  }

  void note(const FakeEvent& event) {
    events.push_back(event);
    watch(event);
  }

  int post(Call call, void* pointer, int n, void** data, size_t* bytes, const int* tags,
           void** mhandles, void** request) {
    ++calls;
    if (n < 1 || n > max_receives) {
      breach("more receives in one call than maxRecvs", nullptr);
      return kNetInvalidArgument;
    }
    auto* comm = static_cast<FakeComm*>(pointer);
    if (comm->sends != (call == Call::kIsend)) breach("post on a comm of the other way", nullptr);
    if (*request != nullptr) breach("post with a request that is not NULL", nullptr);
    if (const int refused = code(call, comm)) return refused;
    auto* bytes_at = static_cast<uint8_t*>(data[0]);
    if (busy(*comm)) {
      note({call, comm, comm->posted, bytes_at, false});
      return 0;
    }
    if ((comm->outstanding() + 1) * static_cast<uint64_t>(n) > kNetMaxRequests) {
      breach("a 17th request", nullptr);
      return kNetInternalError;
    }
    FakeRequest& slot = comm->requests[comm->posted % kNetMaxRequests];
    slot = {comm, comm->posted, bytes_at, bytes[0], mhandles[0], 0, false, n};
    for (int i = 0; i < n; ++i) {
      const auto* region = static_cast<Registration*>(mhandles[i]);
      auto* part = static_cast<uint8_t*>(data[i]);
      if (region->comm != pointer || part < region->data ||
          part + bytes[i] > region->data + region->bytes) {
        breach("a post outside of its registration", nullptr);
      }
      slot.tags[i] = tags[i];
      slot.parts[i] = part;
      slot.room[i] = bytes[i];
    }
    ++comm->posted;
    comm->most_outstanding = std::max(comm->most_outstanding, comm->outstanding());
    *request = &slot;
    note({call, comm, slot.serial, bytes_at, true});
    return 0;
  }

  std::vector<std::unique_ptr<FakeComm>> comms_;
  std::deque<FakeFlush> flushes_;
};

inline void check_breaches(const FakeNet& net, const char* file, int line) {
  for (const std::string& breach : net.breaches) check::fail(file, line, "breach: " + breach);
}

#define CHECK_CONTRACT(net) check_breaches(net, __FILE__, __LINE__)
