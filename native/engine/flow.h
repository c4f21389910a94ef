// One life of a chunk. A flow is one FIFO of chunks: the sends or the receives of a comm, or the
// copies within a rank. Chunks come from a feed, a schedule (TimedLoop) or messages (Session);
// at most a window of them are posted, only the oldest is tested, and they finish in order.
//
//   kQueued  --the window has room, the plugin takes it--> kPosted     busy: kQueued, asked again
//            --copy or scaling by the CPU, or of nothing-> kFinished
//            --copy or scaling by the GPU----------------> kMoving
//   kPosted  --test: done, a send------------------------> kFinished
//            --test: done, a receive in its place--------> kArrived
//            --test: done, a receive in staging----------> kArrived    reduced into its place by
//                                                                      the CPU, or kMoving by a GPU
//            --test: done, a receive that is not visible-> kFlushing   iflush is called; where that
//                                                                      gives no request, as below
//            --test: done, a receive in fragments--------> kMoving     its ticket is the
//            unpacker's,
//                                                                      which may reduce, too
//   kFlushing--test of the flush: done-------------------> as kPosted, a receive in place or
//   staging kMoving  --in place, in order, a receive-------------> kArrived
//            --in place, in order, a copy----------------> kFinished
//   kArrived --in order, irecvConsumed where offered-----> kFinished   its slot is free
//   any but kMoving --error, wrong size------------------> kFailed     and the flow is not advanced
//
// A receive that is reduced with an operand of this rank lands in staging where the plugin delivers
// in place; out of fragments it goes to its place in one pass. Flushes are under way together, and
// the oldest is tested.
//
// A failure of the GPU belongs to no chunk: see flush_moves(). Nothing here allocates, logs, locks
// or formats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/connections.h"
#include "engine/flow_report.h"
#include "engine/program.h"
#include "engine/watch.h"
#include "net/net.h"
#include "reduce/reduce.h"
#include "unpack/unpacker.h"

namespace tcpx {

enum class ChunkState : uint8_t {
  kQueued,
  kPosted,
  kFlushing,
  kMoving,
  kArrived,
  kFinished,
  kFailed
};

constexpr int kTag = 99;  // some plugins match by tag: equal on both sides

// `Part` is what the chunk is to its feed. A line of the cache each.
template <typename Part>
struct alignas(64) Chunk {
  ChunkState state = ChunkState::kFinished;
  bool scattered = false;  // a receive that comes as fragments
  bool flushes = false;    // a receive in place that is visible when it is flushed
  ChunkWork work = ChunkWork::kMove;
  uint32_t bytes = 0;
  void* request = nullptr;
  uint8_t* data = nullptr;  // where the plugin, or a copy, writes
  void* mhandle = nullptr;  // of a receive
  union {
    uint64_t ticket = 0;  // of the unpacker or copier, while kMoving
    void* flush;          // the plugin's request, while kFlushing
  };
  int64_t posted_at = 0;
  Part part{};
};

// What of a chunk is needed to post it, and no longer.
struct Posting {
  void* mhandle = nullptr;
  const uint8_t* source = nullptr;  // of a copy
};

// Receives that are posted in one call, by their place in it: room may be more than is sent.
struct Group {
  int n = 0;
  void* data[kMaxReceives];
  size_t room[kMaxReceives];
  int tags[kMaxReceives];
  void* mhandles[kMaxReceives];
  int sizes[kMaxReceives];  // that are sent
};

// Of a receive that is reduced: what it meets, and where the result belongs.
struct Operands {
  const uint8_t* local;
  uint8_t* result;
};

// What a flow is and how far it got, whoever feeds it.
struct FlowCounts {
  FlowKind kind = FlowKind::kSend;
  int channel = 0;
  int window = 0;
  Comm* comm = nullptr;                    // NULL: copies
  const NetUnpackDevice* queue = nullptr;  // where the plugin lists fragments of receives
  Unpacker* mover = nullptr;  // of fragments, or of copies; NULL: the CPU copies at once
  uint64_t posted = 0;
  uint64_t tested = 0;    // seen done, though perhaps not in place
  uint64_t flushed = 0;   // of those, visible; behind `finished` where nothing was flushed
  uint64_t finished = 0;  // in place and consumed
  uint64_t bytes = 0;     // finished
  int flushing = 0;       // chunks

  void restart() {
    posted = tested = flushed = finished = bytes = 0;
    flushing = 0;
  }
  // Without the oldest chunk, which has a Part.
  void draw(FlowPicture* picture) const;
};

// A feed has, for its own Source and Part:
//   Net& net();  bool failed() const;  int64_t now() const;
//   bool next(flow, chunk, posting): describes the chunk to be posted; false: none may be now
//   void took(flow, chunk): it is posted, the next one is to come
//   void finished(flow, chunk)
//   void fail(flow, chunk, fault): afterwards failed() is true
//   void calls(flow, call): that is to come
//   void flushes(chunk): the plugin has said that it is done, and is asked to flush it
// and, where some chunk has other work than to move, which kComputes says:
//   const Arithmetic& arithmetic() const
//   Operands operands(chunk) const: of a receive that is reduced
//   bool pause_over(chunk): of a pause that may begin, or has begun
// and, where kTraces says that steps are stamped:
//   void done(flow, chunk): the plugin has said so;  void visible(flow, chunk): it is flushed
//   void in_place(flow, chunk): it is unpacked, or reduced by a GPU
// and, where kGroups says that one irecv takes several messages, which `next` describes:
//   const Group& group(flow, chunk) const: of a receive, from its post on
//   int tag(flow) const: of the message to be sent
template <typename Source, typename Part>
struct Flow : FlowCounts {
  Source source;
  Chunk<Part> chunks[kNetMaxRequests];

  explicit Flow(Source from = {}) : source(std::move(from)) {}

  // True when anything moved. One post a visit: between two posts of a flow every other flow makes
  // progress.
  template <typename Feed>
  bool advance(Feed& feed) {
    bool moved = false;
    while (tested != posted && test_oldest(feed)) moved = true;
    if (flushing != 0 && !feed.failed()) moved |= test_flushes(feed);
    if (finished != tested && !feed.failed()) moved |= finish_in_order(feed);
    if (!feed.failed() && posted - finished < static_cast<uint64_t>(window)) {
      moved |= post_next(feed);
    }
    return moved;
  }

  // What the GPU has put in place.
  template <typename Feed>
  bool finish_in_order(Feed& feed) {
    bool moved = false;
    while (finished != tested) {
      Chunk<Part>& chunk = oldest();
      if (chunk.state == ChunkState::kFlushing) break;
      if (chunk.state == ChunkState::kMoving) {
        if (chunk.ticket > mover->finished()) break;
        if (kind == FlowKind::kReceive) chunk.state = ChunkState::kArrived;
        if constexpr (Feed::kTraces) feed.in_place(*this, chunk);
      }
      if (!finish(feed, chunk)) break;
      moved = true;
    }
    return moved;
  }

  // Of those that are posted, or the one to be posted next.
  Chunk<Part>& oldest() { return chunks[finished % kNetMaxRequests]; }
  const Chunk<Part>& oldest() const { return chunks[finished % kNetMaxRequests]; }

 private:
  template <typename Feed>
  bool post_next(Feed& feed) {
    Chunk<Part>& chunk = chunks[posted % kNetMaxRequests];
    Posting posting;
    if (!feed.next(*this, chunk, posting)) return false;
    chunk.state = ChunkState::kQueued;
    if (kind == FlowKind::kCopy) return copy(feed, chunk, posting.source);
    void* request = nullptr;
    int code;
    if (kind == FlowKind::kSend) {
      int tag = kTag;
      if constexpr (Feed::kGroups) tag = feed.tag(*this);
      feed.calls(*this, watch::InCall::kPost);
      code = feed.net().isend(comm->comm, chunk.data, chunk.bytes, tag, posting.mhandle, &request);
    } else if constexpr (Feed::kGroups) {
      Group group = feed.group(*this, chunk);  // the plugin's own to write to
      feed.calls(*this, watch::InCall::kPost);
      code = feed.net().irecv(comm->comm, group.n, group.data, group.room, group.tags,
                              group.mhandles, &request);
    } else {
      void* data = chunk.data;
      size_t size = chunk.bytes;
      int tag = kTag;
      feed.calls(*this, watch::InCall::kPost);
      code = feed.net().irecv(comm->comm, 1, &data, &size, &tag, &posting.mhandle, &request);
    }
    if (code != kNetSuccess) {
      return fail(feed, chunk, FaultKind::kPlugin, kind == FlowKind::kSend ? "isend" : "irecv",
                  code);
    }
    if (request == nullptr) return false;  // busy: the same chunk again at the next visit
    chunk.request = request;
    chunk.mhandle = posting.mhandle;
    chunk.state = ChunkState::kPosted;
    chunk.posted_at = feed.now();
    ++posted;
    feed.took(*this, chunk);
    return true;
  }

  template <typename Feed>
  bool copy(Feed& feed, Chunk<Part>& chunk, const uint8_t* from) {
    if constexpr (Feed::kComputes) {
      if (chunk.work == ChunkWork::kPause && !feed.pause_over(chunk)) return false;
    }
    chunk.posted_at = feed.now();
    ++posted;
    ++tested;
    feed.took(*this, chunk);
    if (chunk.bytes == 0) {  // it joins steps, or was a pause
      chunk.state = ChunkState::kFinished;
      return finished + 1 != posted || finish(feed, chunk);
    }
    if (mover == nullptr) {
      copy_now(feed, chunk, from);
      return finish(feed, chunk);
    }
    if (chunk.work == ChunkWork::kScale) {
      mover->scale(chunk.data, from, chunk.bytes);
    } else {
      mover->copy(chunk.data, from, chunk.bytes);
    }
    chunk.ticket = mover->last_ticket();
    chunk.state = ChunkState::kMoving;
    return true;
  }

  template <typename Feed>
  void copy_now(Feed& feed, Chunk<Part>& chunk, const uint8_t* from) {
    if constexpr (Feed::kComputes) {
      if (chunk.work == ChunkWork::kScale) {
        return tcpx::scale(feed.arithmetic(), from, chunk.data, chunk.bytes);
      }
    }
    memcpy(chunk.data, from, chunk.bytes);
  }

  // False when the oldest request that is not known to be done is not done now, or has failed. Once
  // done it is not asked again.
  template <typename Feed>
  bool test_oldest(Feed& feed) {
    Chunk<Part>& chunk = chunks[tested % kNetMaxRequests];
    int done = 0;
    int sizes[Feed::kGroups ? kMaxReceives : 1] = {0};
    const int code = feed.net().test(chunk.request, &done, sizes);
    if (code != kNetSuccess) return fail(feed, chunk, FaultKind::kPlugin, "test", code);
    if (!done) return false;
    if constexpr (Feed::kTraces) feed.done(*this, chunk);
    if (kind == FlowKind::kReceive) {
      if constexpr (Feed::kGroups) {
        if (!has_sizes(feed, chunk, sizes)) return false;
      } else {
        // TCPX never writes the size. A plugin that wrote one writes them all, so its 0 is a size.
        comm->reports_sizes |= sizes[0] != 0;
        if (comm->reports_sizes && static_cast<uint32_t>(sizes[0]) != chunk.bytes) {
          return fail(feed, chunk, FaultKind::kSize, "test", sizes[0]);
        }
      }
      if (chunk.scattered && !begin_unpack(feed, chunk)) return false;
      if (chunk.flushes && !begin_flush(feed, chunk)) return false;
      ++comm->receives_done;
      if (chunk.state == ChunkState::kPosted) arrive(feed, chunk);
    } else {
      chunk.state = ChunkState::kFinished;
    }
    const bool is_first = finished == tested++;
    const bool goes_on = chunk.state == ChunkState::kMoving || chunk.state == ChunkState::kFlushing;
    return !is_first || goes_on || finish(feed, chunk);
  }

  // Of a group: that each of its messages has the size with which it was sent.
  template <typename Feed>
  bool has_sizes(Feed& feed, Chunk<Part>& chunk, const int* sizes) {
    const Group& group = feed.group(*this, chunk);
    for (int i = 0; i < group.n; ++i) comm->reports_sizes |= sizes[i] != 0;
    for (int i = 0; i < group.n && comm->reports_sizes; ++i) {
      if (sizes[i] == group.sizes[i]) continue;
      chunk.bytes = static_cast<uint32_t>(group.sizes[i]);  // what it is told beside
      return fail(feed, chunk, FaultKind::kSize, "test", sizes[i]);
    }
    return true;
  }

  // What the plugin put in place is to be seen by whoever reads it.
  template <typename Feed>
  bool begin_flush(Feed& feed, Chunk<Part>& chunk) {
    feed.flushes(chunk);
    chunk.flush = nullptr;  // some plugins leave it as it is: that is "done at once"
    int code;
    if constexpr (Feed::kGroups) {
      Group group = feed.group(*this, chunk);
      feed.calls(*this, watch::InCall::kFlush);
      code = feed.net().iflush(comm->comm, group.n, group.data, group.sizes, group.mhandles,
                               &chunk.flush);
    } else {
      void* data = chunk.data;
      int size = static_cast<int>(chunk.bytes);
      feed.calls(*this, watch::InCall::kFlush);
      code = feed.net().iflush(comm->comm, 1, &data, &size, &chunk.mhandle, &chunk.flush);
    }
    feed.calls(*this, watch::InCall::kTest);
    if (code != kNetSuccess) return fail(feed, chunk, FaultKind::kPlugin, "iflush", code);
    if (chunk.flush == nullptr) {
      if constexpr (Feed::kTraces) feed.visible(*this, chunk);
      return true;
    }
    chunk.state = ChunkState::kFlushing;
    ++flushing;
    return true;
  }

  template <typename Feed>
  bool test_flushes(Feed& feed) {
    bool moved = false;
    flushed = std::max(flushed, finished);
    for (; flushing != 0 && flushed != tested; ++flushed) {
      Chunk<Part>& chunk = chunks[flushed % kNetMaxRequests];
      if (chunk.state != ChunkState::kFlushing) continue;
      int done = 0;
      int sizes[Feed::kGroups ? kMaxReceives : 1] = {0};
      feed.calls(*this, watch::InCall::kTestFlush);
      const int code = feed.net().test(chunk.flush, &done, sizes);
      feed.calls(*this, watch::InCall::kTest);
      if (code != kNetSuccess)
        return fail(feed, chunk, FaultKind::kPlugin, watch::call_name(watch::InCall::kTestFlush),
                    code);
      if (!done) break;
      --flushing;
      moved = true;
      if constexpr (Feed::kTraces) feed.visible(*this, chunk);
      arrive(feed, chunk);
    }
    return moved;
  }

  template <typename Feed>
  void arrive(Feed& feed, Chunk<Part>& chunk) {
    if constexpr (Feed::kComputes) {
      if (chunk.work == ChunkWork::kReduce) {
        const Operands with = feed.operands(chunk);
        if (mover != nullptr) {
          mover->reduce(chunk.data, with.local, with.result, chunk.bytes);
          chunk.ticket = mover->last_ticket();
          chunk.state = ChunkState::kMoving;
          return;
        }
        tcpx::reduce(feed.arithmetic(), chunk.data, with.local, with.result, chunk.bytes);
      }
    }
    chunk.state = ChunkState::kArrived;
  }

  // What was received is the sum of the fragments: TCPX tells no other size.
  template <typename Feed>
  bool begin_unpack(Feed& feed, Chunk<Part>& chunk) {
    const UnpackResult result =
        submit(feed, chunk, unpack_source(*queue, comm->receives_done, chunk.bytes));
    if (!result.in_bounds || result.bytes != chunk.bytes) {
      return fail(feed, chunk, FaultKind::kSize, "test", size_code(result.bytes));
    }
    chunk.ticket = mover->last_ticket();
    chunk.state = ChunkState::kMoving;
    return true;
  }

  template <typename Feed>
  UnpackResult submit(Feed& feed, Chunk<Part>& chunk, const UnpackSource& source) {
    if constexpr (Feed::kComputes) {
      if (chunk.work == ChunkWork::kReduce) {
        const Operands with = feed.operands(chunk);
        return mover->submit_reduce(source, with.local, with.result, chunk.bytes);
      }
    }
    return mover->submit(source, chunk.data, chunk.bytes);
  }

  // The oldest chunk is in place: its slot, and what the plugin keeps for it, are free again.
  template <typename Feed>
  bool finish(Feed& feed, Chunk<Part>& chunk) {
    if (chunk.state == ChunkState::kArrived && feed.net().offers_consumed()) {
      int receives = 1;
      if constexpr (Feed::kGroups) receives = feed.group(*this, chunk).n;
      feed.calls(*this, watch::InCall::kConsumed);
      const int code = feed.net().irecv_consumed(comm->comm, receives, chunk.request);
      feed.calls(*this, watch::InCall::kTest);
      if (code != kNetSuccess) {
        return fail(feed, chunk, FaultKind::kPlugin, "irecvConsumed", code);
      }
    }
    chunk.state = ChunkState::kFinished;
    ++finished;
    bytes += chunk.bytes;
    feed.finished(*this, chunk);
    return true;
  }

  // Seldom: kept out of the way of what every chunk goes through.
  template <typename Feed>
  __attribute__((noinline, cold)) bool fail(Feed& feed, Chunk<Part>& chunk, FaultKind fault_kind,
                                            const char* call, int code) {
    chunk.state = ChunkState::kFailed;
    FlowFault fault;
    fault.kind = fault_kind;
    fault.call = call;
    fault.code = code;
    fault.direction = kind;
    fault.channel = channel;
    fault.bytes = chunk.bytes;
    feed.fail(*this, chunk, fault);
    return false;
  }
};

// Begins with all that flows gave to `mover`, in one launch. A fault of kind kGpu when the GPU has
// failed, which ends all that is not finished.
FlowFault flush_moves(Unpacker& mover);

// Throws std::invalid_argument for a window that no plugin could keep.
void check_windows(int send, int receive);

}  // namespace tcpx
