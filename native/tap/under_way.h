// Comms and requests of the plugin, found by its own pointers: the caller is given these as they
// are. Looked up by any thread without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tap/layout.h"
#include "tap/ring.h"

namespace tap {

// What several threads may look at, and one writes: each value whole, in no order.
template <class T>
class Seen {
 public:
  operator T() const { return value_.load(std::memory_order_relaxed); }
  T operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return value;
  }

 private:
  std::atomic<T> value_{};
};

inline size_t hash_of(const void* pointer) {
  return static_cast<size_t>((reinterpret_cast<uint64_t>(pointer) * 0x9e3779b97f4a7c15u) >> 40);
}

struct alignas(64) Comm {
  Seen<uint32_t> number;
  Seen<uint32_t> posted;  // requests so far
  Seen<uint32_t> done;
  Seen<bool> sends;
  Seen<Ring*> ring;  // of the thread that was the last to call
};

// Comms that are open. One thread at a time changes it.
class Comms {
 public:
  Comm* find(const void* pointer) const {
    for (size_t i = 0, at = hash_of(pointer); i < kProbes; ++i, ++at) {
      const Place& place = places_[at % kPlaces];
      const void* key = place.key.load(std::memory_order_acquire);
      if (key == nullptr || pointer == kGone) return nullptr;
      if (key == pointer) return place.comm;
    }
    return nullptr;
  }
  // False: there is no room for it.
  bool insert(const void* pointer, Comm* comm) {
    for (size_t i = 0, at = hash_of(pointer); i < kProbes; ++i, ++at) {
      Place& place = places_[at % kPlaces];
      const void* key = place.key.load(std::memory_order_relaxed);
      if (key != nullptr && key != kGone && key != pointer) continue;
      place.comm = comm;
      place.key.store(pointer, std::memory_order_release);
      return true;
    }
    return false;
  }
  Comm* remove(const void* pointer) {
    for (size_t i = 0, at = hash_of(pointer); i < kProbes; ++i, ++at) {
      Place& place = places_[at % kPlaces];
      if (pointer == nullptr || place.key.load(std::memory_order_relaxed) != pointer) continue;
      place.key.store(kGone, std::memory_order_release);
      return place.comm;
    }
    return nullptr;
  }

 private:
  static constexpr size_t kPlaces = 1 << 14, kProbes = 64;
  static inline const void* const kGone = reinterpret_cast<const void*>(1);
  struct Place {
    std::atomic<const void*> key{nullptr};
    Seen<Comm*> comm;
  };
  std::unique_ptr<Place[]> places_{new Place[kPlaces]};
};

struct Count {
  uint32_t number, polls;
};
struct Sort {
  float plugin;
  uint8_t kind, parts, code;
};
struct alignas(64) Request {
  std::atomic<uint32_t> life{0};  // how many were here so far
  std::atomic<uint32_t> over{0};  // which of them was done; another one is under way
  Seen<const void*> pointer;
  Seen<Comm*> comm;
  Seen<uint64_t> posted;  // ticks
  Seen<uint64_t> polled;  // when the last test returned
  Seen<uint64_t> bytes;
  Seen<Count> count;
  Seen<Sort> sort;
};
static_assert(sizeof(Request) == 64, "one cache line");

class Requests {
 public:
  Request* find(const void* pointer) const {
    for (size_t i = 0, at = hash_of(pointer); i < kProbes; ++i, ++at) {
      Request& place = places_[at % kPlaces];
      if (place.pointer == pointer &&
          is_under_way(place, place.life.load(std::memory_order_acquire)))
        return &place;
    }
    return nullptr;
  }
  // A place for a request that the plugin has just made; nullptr: there is no room. Whatever had
  // the same pointer is over, or the plugin would not have made it anew.
  Request* begin(const void* pointer) {
    for (size_t i = 0, at = hash_of(pointer); i < kProbes; ++i, ++at) {
      Request& place = places_[at % kPlaces];
      if (place.pointer != pointer) continue;
      uint32_t life = place.life.load(std::memory_order_relaxed);
      if (place.life.compare_exchange_strong(life, life + 1, std::memory_order_acquire))
        return &place;
    }
    for (size_t i = 0, at = hash_of(pointer); i < kProbes; ++i, ++at) {
      Request& place = places_[at % kPlaces];
      uint32_t life = place.life.load(std::memory_order_acquire);
      if (!is_under_way(place, life) &&
          place.life.compare_exchange_strong(life, life + 1, std::memory_order_acquire))
        return &place;
    }
    return nullptr;
  }
  // Where it was not made anew meanwhile. No locked instruction, which would wait for all stores
  // before it: a begin() between these two lines is under way all the same.
  static void end(Request& request, uint32_t life) {
    if (request.life.load(std::memory_order_relaxed) == life)
      request.over.store(life, std::memory_order_release);
  }
  template <class Use>
  void each(Use use) const {
    for (size_t i = 0; i < kPlaces; ++i) {
      const uint32_t life = places_[i].life.load(std::memory_order_acquire);
      if (is_under_way(places_[i], life)) use(places_[i], life);
    }
  }

 private:
  static bool is_under_way(const Request& place, uint32_t life) {
    return place.over.load(std::memory_order_acquire) != life;
  }

  static constexpr size_t kPlaces = 1 << 14, kProbes = 8;
  std::unique_ptr<Request[]> places_{new Request[kPlaces]};
};

}  // namespace tap
